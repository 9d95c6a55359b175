package agent

import (
	"maps"
	"slices"

	"golang.org/x/sys/unix"
)

// The encoded terminal modes of RFC 4254, section 8, and RFC 8160. Opcodes
// without a counterpart in Linux (VDSUSP, VFLUSH, VSTATUS) and the baud rates,
// which mean nothing here, are left out and so ignored.

// modeChars maps opcodes of control characters to indices of the termios.
var modeChars = map[uint8]int{
	1: unix.VINTR, 2: unix.VQUIT, 3: unix.VERASE, 4: unix.VKILL, 5: unix.VEOF,
	6: unix.VEOL, 7: unix.VEOL2, 8: unix.VSTART, 9: unix.VSTOP, 10: unix.VSUSP,
	12: unix.VREPRINT, 13: unix.VWERASE, 14: unix.VLNEXT, 16: unix.VSWTC, 18: unix.VDISCARD,
}

// noChar is the value that means that a control character is disabled.
const noChar = 255

// Flags of each word of the termios by opcode.
var (
	inputModes = map[uint8]uint32{
		30: unix.IGNPAR, 31: unix.PARMRK, 32: unix.INPCK, 33: unix.ISTRIP, 34: unix.INLCR,
		35: unix.IGNCR, 36: unix.ICRNL, 37: unix.IUCLC, 38: unix.IXON, 39: unix.IXANY,
		40: unix.IXOFF, 41: unix.IMAXBEL, 42: unix.IUTF8,
	}
	localModes = map[uint8]uint32{
		50: unix.ISIG, 51: unix.ICANON, 52: unix.XCASE, 53: unix.ECHO, 54: unix.ECHOE,
		55: unix.ECHOK, 56: unix.ECHONL, 57: unix.NOFLSH, 58: unix.TOSTOP, 59: unix.IEXTEN,
		60: unix.ECHOCTL, 61: unix.ECHOKE, 62: unix.PENDIN,
	}
	outputModes = map[uint8]uint32{
		70: unix.OPOST, 71: unix.OLCUC, 72: unix.ONLCR, 73: unix.OCRNL, 74: unix.ONOCR, 75: unix.ONLRET,
	}
	controlModes = map[uint8]uint32{
		90: unix.CS7, 91: unix.CS8, 92: unix.PARENB, 93: unix.PARODD,
	}
)

// setModes applies the modes to a terminal.
func setModes(fd int, modes map[uint8]uint32) error {
	if len(modes) == 0 {
		return nil
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return err
	}
	applyModes(t, modes)
	return unix.IoctlSetTermios(fd, unix.TCSETS, t)
}

// applyModes changes what the modes name and nothing else.
func applyModes(t *unix.Termios, modes map[uint8]uint32) {
	// In order of the opcodes: clients send CS7 along with CS8, which wins.
	for _, opcode := range slices.Sorted(maps.Keys(modes)) {
		value := modes[opcode]
		if index, ok := modeChars[opcode]; ok {
			char := byte(value)
			if value >= noChar {
				char = 0
			}
			t.Cc[index] = char
			continue
		}
		flag(&t.Iflag, inputModes[opcode], value)
		flag(&t.Lflag, localModes[opcode], value)
		flag(&t.Oflag, outputModes[opcode], value)
		if bits := controlModes[opcode]; bits&unix.CSIZE != 0 {
			if value != 0 {
				t.Cflag = t.Cflag&^unix.CSIZE | bits
			}
		} else {
			flag(&t.Cflag, bits, value)
		}
	}
}

func flag(word *uint32, bits, value uint32) {
	if value != 0 {
		*word |= bits
	} else {
		*word &^= bits
	}
}
