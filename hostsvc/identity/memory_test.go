package identity

import (
	"testing"
	"time"
)

func TestMemoryIsBoundedAndForgetsInTime(t *testing.T) {
	const limit = 16
	start := time.Unix(1_000, 0)
	m := newMemory[int, int](limit)
	m.put(-1, 1, start, start)
	if _, ok := m.get(-1, start); ok {
		t.Error("an entry that had ended was remembered")
	}
	for i := range 10 * limit {
		m.put(i, i, start, start.Add(time.Duration(1+i%2)*time.Second))
		if len(m.entries) > limit {
			t.Fatalf("%d entries, at most %d", len(m.entries), limit)
		}
		if got, ok := m.get(i, start); !ok || got != i {
			t.Fatalf("entry %d was forgotten as it came", i)
		}
	}
	for key := range m.entries {
		if _, ok := m.get(key, start.Add(2*time.Second)); ok {
			t.Errorf("entry %d outlived its time", key)
		}
	}

	// What has ended makes room before anything that has not.
	m = newMemory[int, int](limit)
	for i := range limit {
		until := start.Add(time.Hour)
		if i < limit/2 {
			until = start.Add(time.Second)
		}
		m.put(i, i, start, until)
	}
	later := start.Add(time.Minute)
	m.put(limit, limit, later, later.Add(time.Hour))
	for i := limit / 2; i <= limit; i++ {
		if _, ok := m.get(i, later); !ok {
			t.Errorf("entry %d was dropped while others had ended", i)
		}
	}
}
