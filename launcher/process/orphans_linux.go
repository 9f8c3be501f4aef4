package process

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	// setChildSubreaper is the kernel's PR_SET_CHILD_SUBREAPER.
	setChildSubreaper = 36
	// killTime bounds how long strays are killed that start others meanwhile.
	killTime = 2 * time.Second
	killPace = 10 * time.Millisecond
)

// Orphans are the processes below the launcher whose parents have ended. The kernel
// gives them to the launcher, which is the pod's first process or asks for it, and
// keeps them as zombies until somebody asks how they ended. Those of a plugin that
// has left its group, and would outlive it, are killed with it.
//
// A process has one, and no child but plugins.
type Orphans struct {
	log *slog.Logger

	mu sync.Mutex
	// own are the plugins: who started them asks how they end.
	own map[int]struct{}
}

// Adopt makes the process one that orphans are given to.
func Adopt(log *slog.Logger) *Orphans {
	if _, _, errno := syscall.RawSyscall6(syscall.SYS_PRCTL, setChildSubreaper, 1, 0, 0, 0, 0); errno != 0 && os.Getpid() != 1 {
		log.Warn("The kernel gives no orphans to this process: what leaves the plugin's group outlives it", "error", errno)
	}
	return &Orphans{log: log, own: map[int]struct{}{}}
}

// Run asks orphans how they ended, until ctx ends.
func (o *Orphans) Run(ctx context.Context) {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGCHLD)
	defer signal.Stop(ended)
	for {
		o.mu.Lock()
		_, err := o.reap()
		o.mu.Unlock()
		if err != nil {
			o.log.Warn("What the plugin left can't be found", "error", err)
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return
		}
	}
}

// start starts a plugin. Until it is known, nobody may be asked how it ended.
func (o *Orphans) start(cmd *exec.Cmd) error {
	if o == nil {
		return cmd.Start() //nolint:wrapcheck // the caller wraps it
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	err := cmd.Start()
	if err == nil {
		o.own[cmd.Process.Pid] = struct{}{}
	}
	return err //nolint:wrapcheck // the caller wraps it
}

// end is called when a plugin has ended: what it left ends too, unless it may be
// another plugin's.
func (o *Orphans) end(plugin int) {
	if o == nil {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.own, plugin)
	if len(o.own) > 0 {
		return
	}
	for begin := time.Now(); ; <-time.After(killPace) {
		// Who is killed leaves its own children to this process, to be found next.
		left, err := o.reap()
		switch {
		case err != nil:
			o.log.Warn("What the plugin left can't be found", "error", err)
			return
		case len(left) == 0:
			return
		case time.Since(begin) > killTime:
			o.log.Warn("What the plugin left doesn't end", "processes", len(left))
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL) // it has ended meanwhile
		}
	}
}

// reap asks all orphans how they ended, and returns those that run.
func (o *Orphans) reap() (running []int, err error) {
	children, err := childrenOf(os.Getpid())
	if err != nil {
		return nil, err
	}
	for _, pid := range children {
		if _, own := o.own[pid]; own {
			continue
		}
		if ended, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil); err == nil && ended == 0 {
			running = append(running, pid)
		}
	}
	return running, nil
}

// childrenOf finds the children of a process.
func childrenOf(parent int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var found []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // no process
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended meanwhile
		}
		// The name before may hold anything: `7 (a) b) S 1 ...`.
		fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
		if len(fields) > 1 && string(fields[1]) == strconv.Itoa(parent) {
			found = append(found, pid)
		}
	}
	return found, nil
}
