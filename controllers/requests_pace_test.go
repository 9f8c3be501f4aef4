package controllers

import (
	"testing"
	"time"
)

func TestPace_IsPromptOnceAndSpacedAfterwards(t *testing.T) {
	p := &pace{least: time.Second, every: 15 * time.Second}
	begin := time.Unix(1000, 0)
	for _, step := range []struct {
		at, want time.Duration
	}{
		{0, time.Second}, // prompt
		{500 * time.Millisecond, 500 * time.Millisecond}, // the same time
		{2 * time.Second, 14 * time.Second},              // the last was a moment ago
		{10 * time.Second, 6 * time.Second},              // the same time
		{60 * time.Second, time.Second},                  // it is long ago
	} {
		if got := p.wait("a", begin.Add(step.at)); got != step.want {
			t.Errorf("at %s: %s, want %s", step.at, got, step.want)
		}
	}
	if got := p.wait("b", begin.Add(2*time.Second)); got != time.Second {
		t.Errorf("another one waits %s", got)
	}
}
