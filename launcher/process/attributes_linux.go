package process

import "syscall"

// attributes give the child a group of its own: a terminal's interrupt isn't for it,
// and its children can be killed with it. The kernel ends it with the launcher, which
// can be killed with no time to do so: a second launcher's child would meet it.
//
// The kernel takes the thread that starts the child for its parent. Go ends no thread
// but one that a goroutine has locked and not unlocked, which nothing here does.
func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
