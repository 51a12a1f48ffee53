package tuner

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gccl/gccl/schedule"
)

// FileVersion is the version of the tuning file's format that this package reads and writes.
const FileVersion = 1

// fileFormat says what kind of file it is.
const fileFormat = "gccl tuning"

// maxFile bounds what is read.
const maxFile = 64 << 20

// File is what was measured on a machine: the setting GCCL_TUNING_FILE. It is JSON.
type File struct {
	Format  string  `json:"format"`
	Version int     `json:"version"`
	Created string  `json:"created"` // RFC 3339
	Machine Machine `json:"machine"`
	Entries []Entry `json:"entries"`

	digest  string
	byPlace map[place][]Entry // sorted by bytes
}

// Machine tells machines apart whose measurements are of no use to one another.
type Machine struct {
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	CPU   string `json:"cpu"` // model name
	Cores int    `json:"cores"`
}

// String is "AMD EPYC 9R14, 2 cores, linux/amd64".
func (m Machine) String() string {
	return fmt.Sprintf("%s, %d cores, %s/%s", cmp.Or(m.CPU, "unknown processor"), m.Cores, m.OS, m.Arch)
}

// Entry is one measurement: the mean time of a call on the slowest rank.
type Entry struct {
	Collective string `json:"collective"`
	Class      string `json:"class"` // Config.Class
	Ranks      int    `json:"ranks"`
	Hosts      int    `json:"hosts"`
	Registered bool   `json:"registered"`
	Algorithm  string `json:"algorithm"`
	Channels   int    `json:"channels"`
	Chunk      int    `json:"chunk"` // bytes; 0: one window
	Bytes      int    `json:"bytes"` // Query.Bytes
	Nanos      int64  `json:"ns"`
}

// place is an entry without size and time.
type place struct {
	collective, class string
	ranks, hosts      int
	registered        bool
	algorithm         string
	channels, chunk   int
}

func (e *Entry) place() place {
	return place{e.Collective, e.Class, e.Ranks, e.Hosts, e.Registered, e.Algorithm, e.Channels, e.Chunk}
}

// ErrFile is the error of a tuning file that cannot be used.
var ErrFile = errors.New("tuning file")

// Load reads a tuning file and refuses one of another version or machine.
func Load(path string, here Machine) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	file, err := Decode(b)
	if err != nil {
		return nil, fmt.Errorf("%w %s: %w", ErrFile, path, err)
	}
	if file.Machine != here {
		return nil, fmt.Errorf("%w %s was measured on another machine (%v; this is %v): measure here with `gccl tune`, or unset GCCL_TUNING_FILE", ErrFile, path, file.Machine, here)
	}
	return file, nil
}

// Decode reads the bytes of a tuning file.
func Decode(b []byte) (*File, error) {
	if len(b) > maxFile {
		return nil, fmt.Errorf("longer than %d bytes", maxFile)
	}
	var f File
	if err := json.Unmarshal(b, &f); err != nil {
		return nil, fmt.Errorf("not a tuning file: %w", err)
	}
	switch {
	case f.Format != fileFormat:
		return nil, fmt.Errorf("not a tuning file: its format is %q, not %q", f.Format, fileFormat)
	case f.Version != FileVersion:
		return nil, fmt.Errorf("version %d, this build reads version %d: measure again with `gccl tune`", f.Version, FileVersion)
	}
	for i := range f.Entries {
		if err := f.Entries[i].check(); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
	}
	sum := sha256.Sum256(b)
	f.digest = hex.EncodeToString(sum[:8])
	f.index()
	return &f, nil
}

func (e *Entry) check() error {
	if _, err := schedule.ParseCollective(e.Collective); err != nil {
		return err
	}
	if e.Ranks < 1 || e.Hosts < 1 || e.Channels < 1 || e.Chunk < 0 || e.Bytes < 0 || e.Bytes > 1<<50 || e.Nanos < 1 || e.Nanos > int64(time.Hour) {
		return fmt.Errorf("%+v: number out of range", *e)
	}
	return nil
}

func (f *File) index() {
	f.byPlace = map[place][]Entry{}
	for _, e := range f.Entries {
		p := e.place()
		f.byPlace[p] = append(f.byPlace[p], e)
	}
	for _, es := range f.byPlace {
		slices.SortStableFunc(es, func(a, b Entry) int { return a.Bytes - b.Bytes })
	}
}

// Digest identifies the contents; "" without a file.
func (f *File) Digest() string {
	if f == nil {
		return ""
	}
	return f.digest
}

// Save writes the file: to a temporary beside it that is then renamed, so that readers see the old one
// or the new one, whole.
func (f *File) Save(path string) error {
	f.Format, f.Version = fileFormat, FileVersion
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetIndent("", " ")
	if err := enc.Encode(f); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	_, err = tmp.Write(b.Bytes())
	err = errors.Join(err, tmp.Chmod(0o644), tmp.Sync(), tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFile, errors.Join(err, os.Remove(tmp.Name())))
	}
	return nil
}

// Merge replaces entries of the same place and size, and adds the others.
func (f *File) Merge(entries []Entry) {
	type key struct {
		place
		bytes int
	}
	at := map[key]int{}
	for i := range f.Entries {
		at[key{f.Entries[i].place(), f.Entries[i].Bytes}] = i
	}
	for _, e := range entries {
		k := key{e.place(), e.Bytes}
		if i, ok := at[k]; ok {
			f.Entries[i] = e
			continue
		}
		at[k] = len(f.Entries)
		f.Entries = append(f.Entries, e)
	}
	f.index()
}

// time is what the file says about an option: between two sizes by a straight line, below the smallest
// as the smallest, up to twice the largest in proportion, and 0, which is nothing, beyond or where
// nothing was measured.
func (f *File) time(t *Tuner, o *option, q Query) time.Duration {
	if f == nil {
		return 0
	}
	e := Entry{Collective: q.Collective.String(), Class: t.cfg.Class(), Ranks: t.cfg.Size, Hosts: t.hosts(),
		Registered: q.Registered, Algorithm: o.Algorithm, Channels: o.Channels, Chunk: o.Chunk}
	es := f.byPlace[e.place()]
	if len(es) == 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(es, q.Bytes, func(e Entry, n int) int { return e.Bytes - n })
	if i == 0 {
		return time.Duration(es[0].Nanos)
	}
	a := es[i-1]
	if i == len(es) {
		if q.Bytes > 2*a.Bytes {
			return 0
		}
		return time.Duration(max(1, scale(a.Nanos, int64(q.Bytes), int64(max(1, a.Bytes)))))
	}
	b := es[i]
	return time.Duration(a.Nanos + scale(b.Nanos-a.Nanos, int64(q.Bytes-a.Bytes), int64(b.Bytes-a.Bytes)))
}

// scale is v·n/d in whole numbers for n ≤ 2d, without overflow: the fraction is cut to 16 bits.
func scale(v, n, d int64) int64 {
	for d >= 1<<16 {
		n, d = n>>1, d>>1
	}
	return v * n / d
}

// hosts is the number of hosts.
func (t *Tuner) hosts() int {
	n := 1
	for _, h := range t.cfg.Hosts {
		n = max(n, h+1)
	}
	return n
}

// Entry is a measurement of a candidate in this tuner's situation, for the file.
func (t *Tuner) Entry(q Query, c Candidate, nanos int64) Entry {
	return Entry{Collective: q.Collective.String(), Class: t.cfg.Class(), Ranks: t.cfg.Size, Hosts: t.hosts(),
		Registered: q.Registered, Algorithm: c.Algorithm, Channels: c.Channels, Chunk: c.Chunk,
		Bytes: q.Bytes, Nanos: max(1, nanos)}
}
