package asciicast

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"time"
)

// CopyV2 copies a recording as it is, line by line; a torn last line is left
// out. What w gets are whole lines, as soon as they are there.
func CopyV2(w io.Writer, r io.Reader) error {
	buf := make([]byte, maxLine)
	held := 0
	for {
		n, err := r.Read(buf[held:])
		n += held
		end := bytes.LastIndexByte(buf[:n], '\n') + 1
		if end > 0 {
			if _, err := w.Write(buf[:end]); err != nil {
				return err
			}
		}
		held = copy(buf, buf[end:n])
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case held == len(buf):
			return ErrFormat
		}
	}
}

// ConvertV3 writes a recording as asciicast v3.
func ConvertV3(w io.Writer, r io.Reader) error {
	in, err := NewReader(r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	line := append(appendJSON(nil, in.Header.v3()), '\n')
	if _, err := out.Write(line); err != nil {
		return err
	}
	// Times are rounded where they are, not the steps between them: rounding
	// must not add up.
	var before time.Duration
	err = each(in, out, func(e Event) error {
		at := e.At.Round(time.Millisecond)
		line = appendEvent(line[:0], (at - before).Seconds(), 3, e.Code, e.Data)
		before = at
		_, err := out.Write(line)
		return err
	})
	return errors.Join(err, out.Flush())
}

// ConvertText writes what a recording shows as text to read: its lines as they
// were when the next one began, without colours and without the screens of
// programs that draw.
func ConvertText(w io.Writer, r io.Reader) error {
	in, err := NewReader(r)
	if errors.Is(err, io.EOF) {
		return nil
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	p := &plain{w: out}
	err = each(in, out, func(e Event) error {
		if e.Code != Output {
			return nil
		}
		return p.write(e.Data)
	})
	return errors.Join(err, p.end(), out.Flush())
}

// each hands out the events, and flushes out whenever the next one is to be
// waited for.
func each(in *Reader, out *bufio.Writer, do func(Event) error) error {
	for {
		if in.Waiting() {
			if err := out.Flush(); err != nil {
				return err
			}
		}
		e, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := do(e); err != nil {
			return err
		}
	}
}
