package store

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Memory is a Store for the goroutines of one process.
type Memory struct {
	mu      sync.Mutex
	values  map[string][]byte
	waiting map[string]chan struct{} // closed when the key gets a value
	limit   int                      // of keys; 0: none
}

// NewMemory returns an empty store.
func NewMemory() *Memory {
	return &Memory{values: make(map[string][]byte), waiting: make(map[string]chan struct{})}
}

// Set implements Store.
func (m *Memory) Set(ctx context.Context, key string, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.set(key, value)
}

func (m *Memory) set(key string, value []byte) error {
	if _, known := m.values[key]; !known && m.limit > 0 && len(m.values) >= m.limit {
		return fmt.Errorf("store: full, with %d keys", m.limit)
	}
	m.values[key] = append([]byte{}, value...)
	if w := m.waiting[key]; w != nil {
		close(w)
		delete(m.waiting, key)
	}
	return nil
}

// Get implements Store.
func (m *Memory) Get(ctx context.Context, key string) ([]byte, error) {
	if err := CheckKey(key); err != nil {
		return nil, err
	}
	for {
		m.mu.Lock()
		if v, ok := m.values[key]; ok {
			v = slices.Clone(v)
			m.mu.Unlock()
			return v, nil
		}
		w := m.waiting[key]
		if w == nil {
			w = make(chan struct{})
			m.waiting[key] = w
		}
		m.mu.Unlock()
		select {
		case <-w:
		case <-ctx.Done():
			return nil, fmt.Errorf("store: waiting for key %s: %w", key, context.Cause(ctx))
		}
	}
}

// CompareAndSet implements Store.
func (m *Memory) CompareAndSet(ctx context.Context, key string, old, value []byte) error {
	if err := Check(key, value); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, there := m.values[key]
	if there != (old != nil) || !bytes.Equal(now, old) {
		return fmt.Errorf("%w: key %s", ErrConflict, key)
	}
	return m.set(key, value)
}

// Delete implements Store.
func (m *Memory) Delete(ctx context.Context, prefix string) error {
	if err := CheckPrefix(prefix); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for key := range m.values {
		if strings.HasPrefix(key, prefix) {
			delete(m.values, key)
		}
	}
	return nil
}

// Close implements Store. The store stays usable.
func (m *Memory) Close() error { return nil }
