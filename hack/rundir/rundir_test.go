package rundir

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asOwner makes this test binary play the process that dies without cleaning up.
const asOwner = "RUNDIR_TEST_OWNER"

func TestMain(m *testing.M) {
	if os.Getenv(asOwner) != "" {
		playOwner()
	}
	os.Exit(m.Run())
}

// playOwner owns a folder, starts a child, prints both and
// waits to be killed.
func playOwner() {
	dir, err := Create("test")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	script := `echo $$ > "$1/child.pid"; echo ready; exec tail -f "$1/child.pid" > /dev/null`
	child := exec.Command("sh", "-c", script, "sh", dir.Path())
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := child.StdoutPipe()
	if err == nil {
		err = child.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(out).ReadString('\n')
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Between the shell and what it goes on as, a process has no command line to be
	// known by.
	for cmdline := ""; !strings.HasPrefix(cmdline, "tail"); {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", child.Process.Pid))
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		cmdline = string(text)
	}
	fmt.Println(dir.Path(), child.Process.Pid)
	select {}
}

// startOwner runs playOwner in another process.
func startOwner(t *testing.T) (owner *exec.Cmd, path string, child int) {
	t.Helper()
	owner = exec.Command(os.Args[0])
	owner.Env = append(os.Environ(), asOwner+"=1")
	owner.Stderr = os.Stderr
	out, err := owner.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := owner.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = owner.Process.Kill(); _ = owner.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the owner did not start: %v", err)
	}
	if _, err := fmt.Sscan(line, &path, &child); err != nil {
		t.Fatalf("read %q: %v", line, err)
	}
	return owner, path, child
}

func TestLeftoversOfADeadOwnerAreEndedAndThoseOfALivingOneAreNot(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	owner, path, child := startOwner(t)

	mine, err := Create("test")
	if err != nil {
		t.Fatal(err)
	}
	if !runs(child, path) {
		t.Fatal("a living owner lost its child")
	}
	if err := mine.Remove(); err != nil {
		t.Fatal(err)
	}
	if err := mine.Remove(); err != nil {
		t.Fatalf("a second Remove: %v", err)
	}

	if err := owner.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = owner.Wait() // it was killed
	if !runs(child, path) {
		t.Fatal("the child ended with its owner: nothing is tested")
	}
	mine, err = Create("test")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mine.Remove(); err != nil {
			t.Error(err)
		}
	}()
	if runs(child, path) {
		t.Errorf("process %d outlived its owner", child)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder of the dead owner: %v", err)
	}
}

func TestAReusedProcessIDIsNotEnded(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := Create("test")
	if err != nil {
		t.Fatal(err)
	}
	stranger := exec.Command("sleep", "60")
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = stranger.Wait(); close(ended) }()
	t.Cleanup(func() { _ = stranger.Process.Kill(); <-ended })
	record := fmt.Sprintln(stranger.Process.Pid)
	if err := os.WriteFile(filepath.Join(dir.Path(), "old.pid"), []byte(record), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := dir.Remove(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
		t.Fatal("a process that has nothing to do with the folder was ended")
	case <-time.After(200 * time.Millisecond):
	}
}

func TestCreateRefusesAParentThatOthersMayWrite(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	parent := filepath.Join(temp, fmt.Sprintf("kandev-%d", os.Getuid()))
	if err := os.Mkdir(parent, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(parent, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Create("test"); err == nil || !strings.Contains(err.Error(), parent) {
		t.Fatalf("got %v, want an error that names %s", err, parent)
	}
}
