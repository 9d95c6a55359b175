package agent

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/sandgate/sandgate/sandbox/fault"
	"github.com/sandgate/sandgate/sandbox/guest"
)

// openPTY opens a pseudo terminal that belongs to the user. The slave is a
// bare descriptor, for the child alone.
func openPTY(who user) (master *os.File, slave int, err error) {
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, -1, fault.Wrap(err, fault.Unsupported, "this sandbox has no pseudo terminals: open /dev/ptmx: %s", reason(err))
	}
	master = os.NewFile(uintptr(fd), "/dev/ptmx")
	defer func() {
		if err != nil {
			master.Close()
		}
	}()
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, -1, systemError(err, "unlock a pseudo terminal")
	}
	number, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, -1, systemError(err, "name a pseudo terminal")
	}
	path := "/dev/pts/" + strconv.FormatUint(uint64(number), 10)
	slave, err = unix.Open(path, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, -1, systemError(err, "open "+path)
	}
	if who.switches() {
		// Without the right to do so the terminal still works; only programs
		// that open it by its name do not.
		_ = unix.Fchown(slave, int(who.uid), -1)
	}
	return master, slave, nil
}

// setSize sets the size of a terminal; 0 leaves a dimension as it is.
func setSize(fd int, size guest.Size) error {
	ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ)
	if err != nil {
		return err
	}
	if size.Rows != 0 {
		ws.Row = size.Rows
	}
	if size.Cols != 0 {
		ws.Col = size.Cols
	}
	return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, ws)
}
