package docker

// State exposes the label of what a driver's state folder owns.
func (d *Driver) State() string { return d.state }
