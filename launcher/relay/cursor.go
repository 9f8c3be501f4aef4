package relay

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/kandev/plugin-host/contract"
)

// errGarbled says that the file holds what nobody wrote.
var errGarbled = errors.New("the file holds no place in the events")

// readCursor returns what was written last; empty: nothing was. The plugin can put
// anything there, and a pipe would be waited for.
func readCursor(file string) (string, error) {
	info, err := os.Stat(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("look at the place reached in the events: %w", err)
	case !info.Mode().IsRegular(), info.Size() > contract.MaxCursorBytes:
		return "", errGarbled
	}
	text, err := os.ReadFile(file) //nolint:gosec // below the operator's folder
	if err != nil {
		return "", fmt.Errorf("read the place reached in the events: %w", err)
	}
	cursor := string(text)
	if !utf8.ValidString(cursor) || strings.TrimSpace(cursor) != cursor {
		return "", errGarbled
	}
	return cursor, nil
}

// writeCursor replaces the file at once: whatever happens, it holds one of the
// two values.
func writeCursor(file, cursor string) (err error) {
	// One that a crash left is in the way, or what the plugin has put there.
	name := file + ".new"
	if err := os.RemoveAll(name); err != nil {
		return fmt.Errorf("write the place reached in the events: %w", err)
	}
	temporary, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // below the operator's folder
	if err != nil {
		return fmt.Errorf("write the place reached in the events: %w", err)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the place reached in the events: %w", errors.Join(err, os.Remove(name)))
		}
	}()
	_, err = temporary.WriteString(cursor)
	// Without Sync the new name could come to be before what it names.
	if err := errors.Join(err, temporary.Sync(), temporary.Close()); err != nil {
		return err
	}
	return os.Rename(name, file) //nolint:wrapcheck // wrapped above
}
