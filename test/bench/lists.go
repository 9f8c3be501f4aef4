package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/kandev/plugin-host/contract"
	"github.com/kandev/plugin-host/hostsvc/store/sqlite"
	pluginv1 "github.com/kandev/plugin-host/proto/kandev/plugin/v1"
)

const (
	fewTasks  = 1_000
	manyTasks = 100_000
	// farPage is the page, of the largest size, that is compared with the first.
	farPage = 400
	// receiptReaders read at once where the price of receipts is measured.
	receiptReaders = 16
)

// measureLists compares pages of ListTasksExact: the first of many tasks with the
// first of few, and one far behind with the first.
func measureLists(ctx context.Context, m *measurement) (failure error) {
	var clients [2]pluginv1.HostClient
	var benches benches
	defer func() { failure = benches.close(failure) }()
	for i, n := range []int{fewTasks, manyTasks} {
		client, err := benches.alone(ctx, n, true)
		if err != nil {
			return err
		}
		clients[i] = client
	}
	few, many := pageOf(clients[0], nil), pageOf(clients[1], nil)
	ratio, err := m.compare(ctx, "list_first_page_100k_vs_1k on sqlite", 1,
		side{fmt.Sprintf("first page of %d tasks", fewTasks), few}, side{fmt.Sprintf("first page of %d tasks", manyTasks), many})
	if err != nil {
		return err
	}
	m.report(figure{name: "list_first_page_100k_vs_1k", value: ratio, unit: "ratio", atMost: bar(1.5)})

	far, err := cursorTo(ctx, clients[1], farPage)
	if err != nil {
		return err
	}
	first := pageOf(clients[1], &pluginv1.ExactReadPage{Limit: contract.MaxPageSize})
	ratio, err = m.compare(ctx, "page_400_vs_page_1 on sqlite", 1,
		side{"page 1", first}, side{fmt.Sprintf("page %d", farPage), pageOf(clients[1], far)})
	if err != nil {
		return err
	}
	m.report(figure{name: "page_400_vs_page_1", value: ratio, unit: "ratio", atMost: bar(1.2)})
	return nil
}

// benches are closed together.
type benches []*bench

func (all *benches) close(err error) error {
	for _, b := range *all {
		err = b.close(err)
	}
	return err
}

// alone starts a Host of its own, with n tasks.
func (all *benches) alone(ctx context.Context, n int, durable bool) (pluginv1.HostClient, error) {
	b, err := newBench()
	if err != nil {
		return nil, err
	}
	*all = append(*all, b)
	b.tasks = n
	engine, err := sqlite.Open(filepath.Join(b.dir, "host.db"))
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	h, err := b.start(ctx, engine, durable)
	if err != nil {
		return nil, err
	}
	return h.client, nil
}

// pageOf reads one page of tasks, the first of the default size for nil.
func pageOf(client pluginv1.HostClient, page *pluginv1.ExactReadPage) func(context.Context, int) error {
	want := contract.DefaultPageSize
	if page != nil {
		want = contract.MaxPageSize
	}
	return func(ctx context.Context, _ int) error {
		answer, err := client.ListTasksExact(ctx, &pluginv1.ListTasksExactRequest{RequestId: "page", WorkspaceId: workspaceID, Page: page})
		if err == nil && len(answer.GetItems()) != want {
			return fmt.Errorf("a page of %d tasks, want %d", len(answer.GetItems()), want)
		}
		return err
	}
}

// cursorTo walks to a page and returns what asks for it.
func cursorTo(ctx context.Context, client pluginv1.HostClient, number int) (*pluginv1.ExactReadPage, error) {
	page := &pluginv1.ExactReadPage{Limit: contract.MaxPageSize}
	for at := 1; at < number; at++ {
		answer, err := client.ListTasksExact(ctx, &pluginv1.ListTasksExactRequest{RequestId: "walk", WorkspaceId: workspaceID, Page: page})
		if err != nil {
			return nil, fmt.Errorf("read page %d: %w", at, err)
		}
		info := answer.GetPageInfo()
		if !info.GetHasMore() {
			return nil, fmt.Errorf("page %d is the last", at)
		}
		page = &pluginv1.ExactReadPage{Limit: contract.MaxPageSize, Cursor: info.GetNextCursor(), SnapshotVersion: info.GetSnapshotVersion()}
	}
	return page, nil
}

// measureReceipts compares reads whose receipts are durable before they are
// answered with reads that leave none.
func measureReceipts(ctx context.Context, m *measurement) (failure error) {
	var calls [2]func(context.Context, int) error
	var benches benches
	defer func() { failure = benches.close(failure) }()
	for i, durable := range []bool{true, false} {
		client, err := benches.alone(ctx, tasks, durable)
		if err != nil {
			return err
		}
		calls[i] = func(ctx context.Context, worker int) error {
			_, err := client.GetTaskExact(ctx, &pluginv1.GetTaskExactRequest{
				RequestId: "5b2f3c1e-0f6e-4a55-a6b4-6f6c5d2f9a01", WorkspaceId: workspaceID, TaskId: taskID(worker % tasks), CapabilityRevision: 1,
			})
			return err
		}
	}
	ratio, err := m.compare(ctx, "read_receipt_cost on sqlite", receiptReaders, side{"with receipts", calls[0]}, side{"without", calls[1]})
	if err != nil {
		return err
	}
	m.report(figure{name: "read_receipt_cost", value: ratio, unit: "ratio", atLeast: bar(0.45)})
	return nil
}
