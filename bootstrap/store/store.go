// Package store holds the key-value stores through which the ranks of a job can find each other when
// no address is known beforehand.
//
// A [Store] is small on purpose: what cannot be built from these four calls a rendezvous does not need.
// [File] needs only a directory that all ranks share; [Serve] and [Dial] make one of a process with a
// known address; [NewMemory] one of goroutines. A client for etcd is the module bootstrap/etcd.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// ErrConflict says that CompareAndSet found another value than the expected one.
var ErrConflict = errors.New("store: value has changed")

// MaxKey and MaxValue bound what every store takes, in bytes.
const (
	MaxKey   = 512
	MaxValue = 32 << 10
)

// Store is a key-value store that processes share. All methods may be called at the same time, and
// return once ctx is done at the latest.
//
// Keys are made of names with "/" between them; a name is a nonempty string of letters, digits, "-",
// "_" and ".", and not "." or "..". Values are bytes; an empty value is a value.
type Store interface {
	// Set stores value under key.
	Set(ctx context.Context, key string, value []byte) error

	// Get waits until there is a value under key and returns it.
	Get(ctx context.Context, key string) ([]byte, error)

	// CompareAndSet stores value under key if the value there equals old; old nil means that there
	// is none. Else it fails with ErrConflict and changes nothing. It is atomic among all processes.
	CompareAndSet(ctx context.Context, key string, old, value []byte) error

	// Delete removes all keys that start with prefix, which may end inside a name. It is no error
	// if there is none.
	Delete(ctx context.Context, prefix string) error

	// Close frees this process's resources; what is stored stays.
	Close() error
}

// Check refuses keys and values outside the contract, so that all stores refuse alike.
func Check(key string, value []byte) error {
	if err := CheckKey(key); err != nil {
		return err
	}
	if len(value) > MaxValue {
		return fmt.Errorf("store: value of %d bytes, at most %d", len(value), MaxValue)
	}
	return nil
}

// CheckKey refuses keys outside the contract.
func CheckKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("store: key of %d bytes, want 1 to %d", len(key), MaxKey)
	}
	for _, name := range strings.Split(key, "/") {
		if name == "" || name == "." || name == ".." || !plain(name) {
			return fmt.Errorf("store: %q is no key: bad name %q", key, name)
		}
	}
	return nil
}

// CheckPrefix refuses prefixes outside the contract.
func CheckPrefix(prefix string) error {
	if prefix == "" || len(prefix) > MaxKey {
		return fmt.Errorf("store: prefix of %d bytes, want 1 to %d", len(prefix), MaxKey)
	}
	return CheckKey(strings.TrimSuffix(prefix, "/"))
}

func plain(name string) bool {
	for _, c := range []byte(name) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '.':
		default:
			return false
		}
	}
	return true
}
