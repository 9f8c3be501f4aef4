// Package rundir keeps the state of child processes (a control plane, a database
// server) in folders that outlive nobody: when the process that made one is gone,
// however it ended, the next user ends the children it left behind and removes
// the folder.
//
// A folder is owned through a file lock, which the kernel drops with the process.
// Children are known by the files named *.pid in the folder or one level below,
// whose first line is a process id; a process counts as a child only while its
// command line names the folder, so a reused id harms nobody. The package imports
// the standard library only.
package rundir

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	ownerLock = "owner.lock"
	// endGrace is how long leftover processes may take to end by themselves.
	endGrace  = 3 * time.Second
	pollEvery = 50 * time.Millisecond
)

// Dir is a folder owned by this process.
type Dir struct {
	path string

	mu    sync.Mutex
	owner *os.File
}

// Create ends and removes what dead owners left under the same kind, then makes a
// new folder and owns it. The kind is a short word without a path separator; the
// folder's path stays short enough for a Unix socket.
func Create(kind string) (*Dir, error) {
	parent := filepath.Join(os.TempDir(), "kandev-"+strconv.Itoa(os.Getuid()))
	// Others may pass through, so that a child may run as another user; only we
	// may list or write.
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return nil, fmt.Errorf("create the folder for running processes: %w", err)
	}
	if err := mustOwn(parent); err != nil {
		return nil, err
	}
	// One sweep at a time: a folder is locked before anybody else can look at it.
	gate, err := os.OpenFile(filepath.Join(parent, "sweep.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", parent, err)
	}
	defer func() { _ = gate.Close() }()
	if err := syscall.Flock(int(gate.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("lock %s: %w", parent, err)
	}
	if err := sweep(parent, kind); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(parent, kind+"-")
	if err != nil {
		return nil, fmt.Errorf("create a folder for %s: %w", kind, err)
	}
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, fmt.Errorf("open the folder for %s: %w", kind, err)
	}
	owner, held, err := own(path)
	if err != nil {
		return nil, err
	}
	if !held {
		return nil, fmt.Errorf("own %s: a new folder is locked by somebody else", path)
	}
	return &Dir{path: path, owner: owner}, nil
}

// Path is the folder's absolute path.
func (d *Dir) Path() string { return d.path }

// Remove ends the children that still run, removes the folder and gives it up. It
// may be called again, for what a child wrote meanwhile, and from any goroutine.
func (d *Dir) Remove() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	err := wipe(d.path)
	if d.owner != nil {
		err = errors.Join(err, d.owner.Close())
		d.owner = nil
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", d.path, err)
	}
	return nil
}

// mustOwn refuses a parent that another user prepared: the temporary folder is
// shared, and its name can be guessed.
func mustOwn(parent string) error {
	info, err := os.Lstat(parent)
	if err != nil {
		return fmt.Errorf("look at %s: %w", parent, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || int(stat.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("%s is not a folder of this user that only this user may write: remove it", parent)
	}
	return nil
}

// own locks a folder; held is false when its owner lives.
func own(path string) (owner *os.File, held bool, err error) {
	file, err := os.OpenFile(filepath.Join(path, ownerLock), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("open the lock of %s: %w", path, err)
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return file, true, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// sweep clears every folder of a kind whose owner is gone.
func sweep(parent, kind string) error {
	paths, err := filepath.Glob(filepath.Join(parent, kind+"-*"))
	if err != nil {
		return fmt.Errorf("list what earlier runs left: %w", err)
	}
	for _, path := range paths {
		owner, held, err := own(path)
		if err != nil {
			return err
		}
		if !held {
			continue
		}
		err = wipe(path)
		_ = owner.Close()
		if err != nil {
			return fmt.Errorf("clear what an earlier run left in %s: %w", path, err)
		}
	}
	return nil
}

// wipe ends the children recorded in a folder and removes it.
func wipe(path string) error {
	if err := end(children(path), path); err != nil {
		return err
	}
	return os.RemoveAll(path)
}

// children reads the recorded process ids that still belong to the folder.
func children(path string) []int {
	var pids []int
	for _, pattern := range []string{"*.pid", filepath.Join("*", "*.pid")} {
		files, _ := filepath.Glob(filepath.Join(path, pattern)) // the pattern is well-formed
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue // removed by the child that is just ending
			}
			first, _, _ := strings.Cut(string(data), "\n")
			pid, err := strconv.Atoi(strings.TrimSpace(first))
			if err == nil && pid > 1 && runs(pid, path) {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// end asks processes to end, all at once, and kills those that take long: a server
// may wait for another one that is gone, and nobody needs their data.
func end(pids []int, path string) error {
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		for _, pid := range pids {
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
		}
		pids = await(pids, path)
	}
	if len(pids) > 0 {
		return fmt.Errorf("processes %v do not end", pids)
	}
	return nil
}

// await returns the processes that still run after endGrace.
func await(pids []int, path string) []int {
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	deadline := time.Now().Add(endGrace)
	for {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return !runs(pid, path) })
		if len(pids) == 0 || time.Now().After(deadline) {
			return pids
		}
		<-ticker.C
	}
}

// runs reports whether a process lives and its command line names the folder.
func runs(pid int, path string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if errors.Is(err, os.ErrNotExist) {
		if _, noProc := os.Stat("/proc/self"); noProc == nil {
			return false
		}
		line, err = exec.Command("ps", "-o", "args=", "-p", strconv.Itoa(pid)).Output()
	}
	return err == nil && strings.Contains(string(line), path)
}
