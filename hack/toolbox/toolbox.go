package toolbox

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

const (
	// DirVar is the environment variable that moves the folder of built tools.
	// Unset, it is kandev-plugin-host/tools in the user's cache folder.
	DirVar = "KANDEV_TOOLS_DIR"
	// AssetsVar is envtest's variable. When it names a folder that holds
	// kube-apiserver and etcd, those are used and never built; kubectl too when
	// the folder has it.
	AssetsVar = "KUBEBUILDER_ASSETS"

	modulePath = "github.com/kandev/plugin-host"
)

// Box is the set of tools that one working tree pins. It is safe for concurrent
// use, also by several processes and working trees that share one folder.
type Box struct {
	root   string
	dir    string
	assets string
	// ignoredAssets is what AssetsVar named when it was not usable.
	ignoredAssets string
	tools         []pinned
}

// pinned is a tool with everything that its key is made of.
type pinned struct {
	tool
	version string
	ldflags string
	key     string
}

// MissingError says which tools are not built and how to build them.
type MissingError struct {
	// Tools names what is missing, in the order asked for.
	Tools []string
	// Dir is the folder of built tools that was looked into.
	Dir string
	// IgnoredAssets is the value of KUBEBUILDER_ASSETS when it is set but holds
	// no kube-apiserver and etcd; empty otherwise.
	IgnoredAssets string
}

// Error names the tools, the folder and the make target that builds them.
func (e *MissingError) Error() string {
	target := "control-plane"
	for _, name := range e.Tools {
		if name != kubeAPIServer && name != etcd && name != kubectl {
			target = "tools"
		}
	}
	text := fmt.Sprintf("%s not built in %s: run `make %s` once (%s moves that folder)",
		strings.Join(e.Tools, ", "), e.Dir, target, DirVar)
	if e.IgnoredAssets != "" {
		text += fmt.Sprintf("; %s=%s was ignored, it holds no kube-apiserver and etcd", AssetsVar, e.IgnoredAssets)
	}
	return text
}

// Here opens the tools of the working tree around the current directory with the
// process's environment. Tests run in their package's directory, so it serves
// them and commands started anywhere in the tree alike.
func Here() (*Box, error) {
	root, err := Root()
	if err != nil {
		return nil, err
	}
	return open(root, catalog(), os.Getenv)
}

// Root returns the top of the working tree around the current directory: the
// folder whose go.mod declares this repository's module.
func Root() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the working tree: %w", err)
	}
	for dir := at; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the working tree: no go.mod of %s in %s or above", modulePath, at)
		}
	}
}

func open(root string, tools []tool, getenv func(string) string) (*Box, error) {
	dir := getenv(DirVar)
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("find a folder for built tools (set %s): %w", DirVar, err)
		}
		dir = filepath.Join(cache, "kandev-plugin-host", "tools")
	}
	if !filepath.IsAbs(dir) {
		return nil, fmt.Errorf("%s=%s: the path must be absolute", DirVar, dir)
	}
	b := &Box{root: root, dir: filepath.Clean(dir)}
	if assets := getenv(AssetsVar); assets != "" {
		if isExecutable(filepath.Join(assets, kubeAPIServer)) && isExecutable(filepath.Join(assets, etcd)) {
			b.assets = assets
		} else {
			b.ignoredAssets = assets
		}
	}
	for _, t := range tools {
		p, err := pin(root, t)
		if err != nil {
			return nil, err
		}
		b.tools = append(b.tools, p)
	}
	return b, nil
}

// pin computes a tool's version, flags and key from its module.
func pin(root string, t tool) (pinned, error) {
	hash := sha256.New()
	var goMod []byte
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(root, "hack", "tools", t.dir, name))
		if err != nil && (name == "go.mod" || !errors.Is(err, os.ErrNotExist)) {
			return pinned{}, fmt.Errorf("read the tool module of %s: %w", t.name, err)
		}
		if name == "go.mod" {
			goMod = data
		}
		fmt.Fprintf(hash, "%s %d\n%s", name, len(data), data)
	}
	version, err := pinnedVersion(string(goMod), t.pin)
	if err != nil {
		return pinned{}, fmt.Errorf("read the tool module of %s: %w", t.name, err)
	}
	ldflags := "-s -w"
	if t.stamps != nil {
		stamps, err := t.stamps(version, string(goMod))
		if err != nil {
			return pinned{}, fmt.Errorf("stamp %s: %w", t.name, err)
		}
		for _, stamp := range stamps {
			ldflags += " -X " + stamp
		}
	}
	fmt.Fprintf(hash, "\n%s\n%s\n%s\n%s/%s\n", t.pkg, ldflags, runtime.Version(), runtime.GOOS, runtime.GOARCH)
	return pinned{tool: t, version: version, ldflags: ldflags, key: hex.EncodeToString(hash.Sum(nil))[:16]}, nil
}

// Path returns where a built tool is. It returns a *MissingError when the tool is
// not built, and another error for a name that no tool has.
func (b *Box) Path(name string) (string, error) {
	paths, err := b.Paths(name)
	if err != nil {
		return "", err
	}
	return paths[0], nil
}

// Paths is Path for several tools; its *MissingError names all that are missing.
func (b *Box) Paths(names ...string) ([]string, error) {
	var paths, missing []string
	for _, name := range names {
		p, err := b.find(name)
		if err != nil {
			return nil, err
		}
		path := b.location(p)
		if !isExecutable(path) {
			missing = append(missing, name)
		}
		paths = append(paths, path)
	}
	if missing != nil {
		return nil, &MissingError{Tools: missing, Dir: b.dir, IgnoredAssets: b.ignoredAssets}
	}
	return paths, nil
}

// Names lists every tool in build order.
func (b *Box) Names() []string {
	names := make([]string, 0, len(b.tools))
	for _, p := range b.tools {
		names = append(names, p.name)
	}
	return names
}

// Env returns the settings that let other programs find the built tools: AssetsVar
// for envtest, and the folders to put in front of PATH. Build keeps them current.
func (b *Box) Env() (assets string, pathFront []string) {
	if b.assets != "" {
		return b.assets, []string{b.bin(), b.assets}
	}
	return b.bin(), []string{b.bin()}
}

func (b *Box) find(name string) (pinned, error) {
	for _, p := range b.tools {
		if p.name == name {
			return p, nil
		}
	}
	return pinned{}, fmt.Errorf("no tool is called %q; there are %s", name, strings.Join(b.Names(), ", "))
}

// location is where a tool is, or will be once built.
func (b *Box) location(p pinned) string {
	if b.provided(p) {
		return filepath.Join(b.assets, p.name)
	}
	return filepath.Join(b.dir, p.name+"-"+p.key, p.name)
}

// provided reports whether the user's own assets folder supplies the tool.
func (b *Box) provided(p pinned) bool {
	switch {
	case b.assets == "":
		return false
	case p.name == kubeAPIServer || p.name == etcd:
		return true
	default:
		return p.name == kubectl && isExecutable(filepath.Join(b.assets, kubectl))
	}
}

// bin is a folder with a link to each built tool. It is named after all the keys,
// so that two working trees with other pins never see each other's tools.
func (b *Box) bin() string {
	hash := sha256.New()
	for _, p := range b.tools {
		fmt.Fprintf(hash, "%s %s\n", p.name, b.location(p))
	}
	return filepath.Join(b.dir, "bin-"+hex.EncodeToString(hash.Sum(nil))[:16])
}

func isExecutable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0
}
