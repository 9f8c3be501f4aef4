package legacy

import (
	"slices"
	"testing"
)

func TestPaging(t *testing.T) {
	for _, c := range []struct {
		page   Page
		window window
		strict bool
	}{
		{Page{}, window{0, 50}, true},
		{Page{Limit: -1}, window{0, 50}, true},
		{Page{Limit: 1}, window{0, 1}, true},
		{Page{Limit: 200}, window{0, 200}, true},
		{Page{Limit: 201}, window{0, 200}, true},
		{Page{Cursor: "7"}, window{7, 50}, true},
		{Page{Cursor: "-7"}, window{0, 50}, false},
		{Page{Cursor: "seven"}, window{0, 50}, false},
		{Page{Cursor: "99999999999999999999"}, window{0, 50}, false},
	} {
		if got := c.page.window(); got != c.window {
			t.Errorf("%+v: %+v", c.page, got)
		}
		if _, failure := c.page.strict(); (failure == nil) != c.strict {
			t.Errorf("%+v, strictly: %v", c.page, failure)
		}
	}
	for _, c := range []struct {
		items []int
		shown int
		info  PageInfo
	}{
		{nil, 0, PageInfo{}},
		{[]int{1, 2}, 2, PageInfo{}},
		{[]int{1, 2, 3}, 2, PageInfo{HasMore: true, NextCursor: "12"}},
	} {
		shown, info := cut(slices.Clone(c.items), window{10, 2}, func(*int) int { return 1 })
		if len(shown) != c.shown || info != c.info {
			t.Errorf("%v: %v, %+v", c.items, shown, info)
		}
	}
}
