package api_test

import (
	"context"
	"fmt"
	"os"

	"github.com/sandgate/sandgate/sandbox/api"
)

// One command in a sandbox of its own, its output as it comes.
func ExampleClient_Create() {
	ctx := context.Background()
	c, err := api.Dial("ssh://gateway", api.DialConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	made, err := c.Create(ctx, api.CreateRequest{
		Command:   &api.Command{Exec: []string{"python3", "-c", "print(6 * 7)"}, Mode: "oneshot"},
		Resources: &api.Resources{Memory: "256Mi", CPU: "500m"},
		Timeout:   &api.Timeouts{Execution: "30s"},
	}, "", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.ReadStream(ctx, made.StdoutStreamURL, os.Stdout); err != nil {
		fmt.Println(err)
	}
}

// Several commands in one sandbox; the exit code tells how each ended.
func ExampleClient_Execute() {
	ctx := context.Background()
	c, err := api.Dial("unix:///var/lib/sandgate/sandgate.sock", api.DialConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer c.Close()
	for _, command := range [][]string{{"npm", "install"}, {"npm", "test"}} {
		x, err := c.Execute(ctx, "dev", api.ExecuteRequest{Command: command})
		if err == nil {
			x, err = c.WaitExecution(ctx, x.ExecutionID)
		}
		if err != nil || *x.ExitCode != 0 {
			fmt.Println(command, x.Status, err)
			return
		}
	}
}
