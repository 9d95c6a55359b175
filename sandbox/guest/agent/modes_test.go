package agent

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestModes(t *testing.T) {
	base := unix.Termios{
		Iflag: unix.ICRNL | unix.IXON, Oflag: unix.OPOST | unix.ONLCR,
		Cflag: unix.CS8 | unix.CREAD, Lflag: unix.ISIG | unix.ICANON | unix.ECHO,
	}
	base.Cc[unix.VINTR] = 3
	for name, tc := range map[string]struct {
		modes map[uint8]uint32
		check func(unix.Termios) bool
	}{
		"none":          {nil, func(t unix.Termios) bool { return t == base }},
		"end and speed": {map[uint8]uint32{0: 1, 128: 9600, 129: 9600}, func(t unix.Termios) bool { return t == base }},
		"unknown":       {map[uint8]uint32{11: 5, 17: 5, 99: 1, 255: 1}, func(t unix.Termios) bool { return t == base }},
		"echo off":      {map[uint8]uint32{53: 0}, func(t unix.Termios) bool { return t.Lflag == unix.ISIG|unix.ICANON }},
		"raw":           {map[uint8]uint32{50: 0, 51: 0, 53: 0, 36: 0, 70: 0}, func(t unix.Termios) bool { return t.Lflag == 0 && t.Iflag == unix.IXON && t.Oflag == unix.ONLCR }},
		"no ONLCR":      {map[uint8]uint32{72: 0}, func(t unix.Termios) bool { return t.Oflag == unix.OPOST }},
		"IUTF8":         {map[uint8]uint32{42: 1}, func(t unix.Termios) bool { return t.Iflag&unix.IUTF8 != 0 }},
		"interrupt":     {map[uint8]uint32{1: 28}, func(t unix.Termios) bool { return t.Cc[unix.VINTR] == 28 }},
		"disabled":      {map[uint8]uint32{1: 255}, func(t unix.Termios) bool { return t.Cc[unix.VINTR] == 0 }},
		"7 and 8 bits":  {map[uint8]uint32{90: 1, 91: 1}, func(t unix.Termios) bool { return t.Cflag == unix.CS8|unix.CREAD }},
		"7 bits":        {map[uint8]uint32{90: 1, 91: 0}, func(t unix.Termios) bool { return t.Cflag == unix.CS7|unix.CREAD }},
	} {
		got := base
		applyModes(&got, tc.modes)
		if !tc.check(got) {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// FuzzModes holds applyModes to what modes may touch.
func FuzzModes(f *testing.F) {
	f.Add([]byte{1, 3, 53, 0, 72, 1, 91, 1})
	f.Add([]byte{128, 255, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		modes := make(map[uint8]uint32)
		for ; len(b) >= 2; b = b[2:] {
			modes[b[0]] = uint32(b[1]) << (b[0] % 25)
		}
		termios := unix.Termios{Cflag: unix.CREAD | unix.CLOCAL | unix.B38400, Ispeed: 7, Ospeed: 7}
		applyModes(&termios, modes)
		if termios.Cflag&(unix.CREAD|unix.CLOCAL) != unix.CREAD|unix.CLOCAL || termios.Cflag&unix.CBAUD != unix.B38400 ||
			termios.Ispeed != 7 || termios.Ospeed != 7 || termios.Cc[unix.VMIN] != 0 || termios.Cc[unix.VTIME] != 0 {
			t.Errorf("%v changed %+v", modes, termios)
		}
	})
}
