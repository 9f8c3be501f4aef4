package process

import (
	"slices"
	"strings"

	"github.com/kandev/plugin-host/sdk"
)

// DataDirVariable names the child's variable with its data folder.
const DataDirVariable = "KANDEV_PLUGIN_DATA_DIR"

// Environment is what a child's begins with: the given one without what is the
// launcher's own, and without what would change the handshake, and with the data
// folder. go-plugin adds its variables to it.
func Environment(parent []string, dataDir string) []string {
	own := []string{
		sdk.EnvAddress, sdk.EnvCAFile, sdk.EnvTokenFile, DataDirVariable,
		"PLUGIN_MULTIPLEX_GRPC", "PLUGIN_UNIX_SOCKET_GROUP",
	}
	child := slices.DeleteFunc(slices.Clone(parent), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains(own, name) || strings.HasPrefix(name, "KANDEV_LAUNCHER_")
	})
	return append(child, DataDirVariable+"="+dataDir)
}
