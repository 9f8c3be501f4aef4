package identity

import (
	"sync"
	"time"
)

// memory is a bounded map whose entries end at an instant.
type memory[K comparable, V any] struct {
	limit int

	mu      sync.RWMutex
	entries map[K]remembered[V]
}

type remembered[V any] struct {
	value V
	until time.Time
}

func newMemory[K comparable, V any](limit int) *memory[K, V] {
	return &memory[K, V]{limit: limit, entries: map[K]remembered[V]{}}
}

func (m *memory[K, V]) get(key K, now time.Time) (V, bool) {
	m.mu.RLock()
	entry, ok := m.entries[key]
	m.mu.RUnlock()
	if !ok || !now.Before(entry.until) {
		var none V
		return none, false
	}
	return entry.value, true
}

// put remembers value until an instant. When the memory is full, what has ended
// goes first, and then anything: forgetting costs another question, never a
// wrong answer.
func (m *memory[K, V]) put(key K, value V, now, until time.Time) {
	if !now.Before(until) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, known := m.entries[key]; !known && len(m.entries) >= m.limit {
		m.makeRoom(now)
	}
	m.entries[key] = remembered[V]{value: value, until: until}
}

// makeRoom drops at least an eighth, so that a full memory is not swept at
// every put.
func (m *memory[K, V]) makeRoom(now time.Time) {
	target := m.limit - m.limit/8 - 1
	for key, entry := range m.entries {
		if !now.Before(entry.until) {
			delete(m.entries, key)
		}
	}
	for key := range m.entries {
		if len(m.entries) <= target {
			return
		}
		delete(m.entries, key)
	}
}
