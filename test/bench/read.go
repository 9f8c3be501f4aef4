package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const readsInFlight = 64

// echo answers with what a Host answered before.
type echo struct {
	pluginv1.UnimplementedHostServer

	answer *pluginv1.GetTaskExactResponse
}

// GetTaskExact implements pluginv1.HostServer.
func (e echo) GetTaskExact(context.Context, *pluginv1.GetTaskExactRequest) (*pluginv1.GetTaskExactResponse, error) {
	return e.answer, nil
}

// measureReads compares GetTaskExact, with a token that was verified before,
// with an echo of its reply.
func measureReads(ctx context.Context, m *measurement) error {
	for _, variant := range []struct {
		name    string
		durable bool
		bar     float64
	}{
		{"exact_read_vs_echo_noreceipt", false, 0.5},
		{"exact_read_vs_echo", true, 0.35},
	} {
		if err := m.measureRead(ctx, variant.name, variant.durable, variant.bar); err != nil {
			return err
		}
	}
	return nil
}

func (m *measurement) measureRead(ctx context.Context, name string, durable bool, atLeast float64) error {
	b, err := newBench()
	if err != nil {
		return err
	}
	ratio, err := func() (float64, error) {
		engine, err := sqlite.Open(filepath.Join(b.dir, "host.db"))
		if err != nil {
			return 0, fmt.Errorf("open the database: %w", err)
		}
		h, err := b.start(ctx, engine, durable)
		if err != nil {
			return 0, err
		}
		read := func(client pluginv1.HostClient) func(context.Context, int) error {
			return func(ctx context.Context, worker int) error {
				response, err := client.GetTaskExact(ctx, &pluginv1.GetTaskExactRequest{
					RequestId: "5b2f3c1e-0f6e-4a55-a6b4-6f6c5d2f9a01", WorkspaceId: workspaceID, TaskId: taskID(worker % tasks),
					CapabilityRevision: 1,
				})
				if err == nil && response.GetItem().GetTask().GetTitle() == "" {
					return fmt.Errorf("an answer without a task: %v", response)
				}
				return err
			}
		}
		sample, err := h.client.GetTaskExact(ctx, &pluginv1.GetTaskExactRequest{RequestId: "sample", WorkspaceId: workspaceID, TaskId: taskID(0)})
		if err != nil {
			return 0, fmt.Errorf("read a sample: %w", err)
		}
		bare, err := b.bare(ctx, echo{answer: sample})
		if err != nil {
			return 0, err
		}
		return m.compare(ctx, name+" on sqlite", readsInFlight,
			side{"GetTaskExact", read(h.client)}, side{"echo", read(bare)})
	}()
	if err := b.close(err); err != nil {
		return err
	}
	m.report(figure{name: name, value: ratio, unit: "ratio", atLeast: bar(atLeast)})
	return nil
}
