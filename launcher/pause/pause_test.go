package pause_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kandev/plugin-host/launcher/pause"
)

func TestForEndsWithItsTimeOrItsContext(t *testing.T) {
	for name, test := range map[string]struct {
		ends, took time.Duration
		passed     bool
	}{
		"the time passes":   {time.Hour, time.Minute, true},
		"the context ends":  {time.Second, time.Second, false},
		"it has ended long": {0, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), test.ends)
				defer cancel()
				begin := time.Now()
				if passed := pause.For(ctx, time.Minute); passed != test.passed || time.Since(begin) != test.took {
					t.Errorf("says %v after %v", passed, time.Since(begin))
				}
			})
		})
	}
}
