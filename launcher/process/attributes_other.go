//go:build unix && !linux

package process

import "syscall"

// attributes give the child a group of its own: a terminal's interrupt isn't for it,
// and its children can be killed with it.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
