package hostmem

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sync"
)

// PageSize is the size of a base page in bytes.
var PageSize = os.Getpagesize()

// Kind tells how a block's pages are backed.
type Kind uint8

// The kinds of blocks.
const (
	Anonymous Kind = iota + 1 // private to this process
	Shared                    // made here, shared by descriptor
	Mapped                    // made by another process, mapped here; its pages count there
)

// String returns the kind in one word.
func (k Kind) String() string {
	switch k {
	case Anonymous:
		return "anonymous"
	case Shared:
		return "shared"
	case Mapped:
		return "mapped"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Stat counts the open blocks of one kind and purpose.
type Stat struct {
	Kind    Kind
	Purpose string
	Blocks  int
	Bytes   int64 // whole pages
}

type accountKey struct {
	kind    Kind
	purpose string
}

// accounts is process-wide, as memory is.
var accounts struct {
	sync.Mutex
	open map[accountKey]Stat
}

// Stats returns what is open in this process, sorted by kind and purpose; closed purposes vanish.
func Stats() []Stat {
	accounts.Lock()
	defer accounts.Unlock()
	stats := make([]Stat, 0, len(accounts.open))
	for _, s := range accounts.open {
		stats = append(stats, s)
	}
	slices.SortFunc(stats, func(a, b Stat) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Purpose, b.Purpose))
	})
	return stats
}

func account(kind Kind, purpose string, blocks, bytes int) {
	accounts.Lock()
	defer accounts.Unlock()
	if accounts.open == nil {
		accounts.open = make(map[accountKey]Stat)
	}
	key := accountKey{kind, purpose}
	s := accounts.open[key]
	s.Kind, s.Purpose = kind, purpose
	s.Blocks += blocks
	s.Bytes += int64(bytes)
	if s.Blocks == 0 {
		delete(accounts.open, key)
		return
	}
	accounts.open[key] = s
}

// Size prints a number of bytes in binary units, as "1.5 GiB".
func Size[T int | int64 | uint64](n T) string {
	const units = "KMGTPE"
	f, unit := float64(n), -1
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.4g %ciB", f, units[unit])
}
