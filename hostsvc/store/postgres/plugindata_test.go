package postgres_test

import (
	"testing"

	"github.com/kandev/plugin-host/hostsvc/store/storetest"
)

func TestPluginData(t *testing.T) { storetest.RunPluginData(t, fresh(start(t))) }
