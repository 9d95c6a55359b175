package store

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/sandgate/sandgate/sandbox"
)

// BenchmarkUpdateSandbox tells what a state change costs when it is durable,
// with one event as every state change has.
func BenchmarkUpdateSandbox(b *testing.B) {
	s := openStore(b)
	for i := range 100 {
		create(b, s, newSandbox(fmt.Sprint("sbx_", i)))
	}
	took := make([]time.Duration, 0, 1<<16)
	i := 0
	for b.Loop() {
		start := time.Now()
		_, err := s.UpdateSandbox(context.Background(), fmt.Sprint("sbx_", i%100), func(sb *sandbox.Sandbox) ([]sandbox.Event, error) {
			sb.Status = sandbox.Running
			return []sandbox.Event{{Type: sandbox.EventExecStarted, Principal: "alice"}}, nil
		})
		took = append(took, time.Since(start))
		if err != nil {
			b.Fatal(err)
		}
		i++
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkSandbox(b *testing.B) {
	s := openStore(b)
	create(b, s, newSandbox("sbx_1"))
	for b.Loop() {
		if _, err := s.Sandbox(context.Background(), "sbx_1"); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkSandboxes lists the first page of 10,000.
func BenchmarkSandboxes(b *testing.B) {
	s := openStore(b)
	fillTable(b, s, 10_000)
	for b.Loop() {
		page, total, err := s.Sandboxes(context.Background(), sandbox.SandboxFilter{Owner: "alice", LiveOnly: true, Limit: 50})
		if err != nil || len(page) != 50 || total != 10_000 {
			b.Fatal(len(page), total, err)
		}
	}
}

// fillTable records n sandboxes in one transaction.
func fillTable(b *testing.B, s *Store, n int) {
	b.Helper()
	tx, err := s.write.BeginTx(b.Context(), nil)
	must(b, err)
	for i := range n {
		sb := newSandbox(fmt.Sprint("sbx_", i))
		sb.CreatedAt = epoch.Add(time.Duration(i) * time.Second)
		_, err := tx.Exec("INSERT INTO sandboxes ("+sandboxColumns+") VALUES ("+marks(len(sandboxFields(&sb)))+")", sandboxFields(&sb)...)
		must(b, err)
	}
	must(b, tx.Commit())
}
