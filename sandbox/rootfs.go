package sandbox

import "github.com/sandgate/sandgate/sandbox/driver"

// Rootfs is a root filesystem as drivers take it.
type Rootfs = driver.Rootfs
