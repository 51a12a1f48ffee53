package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gccl/gccl/collective"
	"github.com/gccl/gccl/tensor"
)

// manifest is what a rank brings: its tensors, or why it has none.
type manifest struct {
	File    string  `json:"file"`
	Error   string  `json:"error,omitempty"`
	Tensors []entry `json:"tensors"` // by name
}

type entry struct {
	Name  string `json:"name"`
	DType string `json:"dtype"`
	Shape []int  `json:"shape"`
}

func (e entry) String() string { return fmt.Sprintf("%s%v", e.DType, e.Shape) }

// maxManifest bounds a manifest: about 100,000 tensors.
const maxManifest = 16 << 20

// describe is the manifest of what load returned.
func describe(file string, ts []named, err error) manifest {
	m := manifest{File: file}
	if err != nil {
		m.Error = err.Error()
		return m
	}
	for _, t := range ts {
		m.Tensors = append(m.Tensors, entry{t.Name, t.Data.DType().String(), t.Shape})
	}
	return m
}

// agree fails on all ranks, with the same failure, unless all bring the same tensors. Ranks first
// exchange digests of what they bring, and only if those differ the manifests.
func agree(ctx context.Context, comm *collective.Comm, m manifest) error {
	text, err := json.Marshal(m)
	if err == nil && len(text) > maxManifest {
		m = manifest{File: m.File, Error: fmt.Sprintf("%s: too many tensors: their names and shapes take %d bytes, at most %d are allowed", m.File, len(text), maxManifest)}
		text, err = json.Marshal(m)
	}
	if err != nil {
		return err
	}
	same, lengths, err := compareDigests(ctx, comm, m, len(text))
	if err != nil || same {
		return err
	}
	all, err := gather(ctx, comm, text, lengths)
	if err != nil {
		return err
	}
	return verdict(all)
}

// compareDigests reports whether all ranks bring the same tensors and none has an error, and how long
// their manifests are.
func compareDigests(ctx context.Context, comm *collective.Comm, m manifest, length int) (same bool, lengths []int, err error) {
	m.File = "" // differs, of course
	what, err := json.Marshal(m)
	if err != nil {
		return false, nil, err
	}
	const card = sha256.Size + 8 + 1 // digest, length of the manifest, whether it is an error
	digest := sha256.Sum256(what)
	mine := binary.LittleEndian.AppendUint64(digest[:], uint64(length))
	mine = append(mine, 0)
	if m.Error != "" {
		mine[card-1] = 1
	}
	cards := make([]byte, card*comm.Size())
	if err := comm.AllGather(ctx, tensor.Of(cards), tensor.Of(mine)); err != nil {
		return false, nil, err
	}
	same = true
	for r := range comm.Size() {
		c := cards[r*card : (r+1)*card]
		same = same && [sha256.Size]byte(c) == digest && c[card-1] == 0
		n := binary.LittleEndian.Uint64(c[sha256.Size:])
		if n > maxManifest {
			return false, nil, blame(r, "sent a manifest of %d bytes", n)
		}
		lengths = append(lengths, int(n))
	}
	return same, lengths, nil
}

// gather exchanges the manifests.
func gather(ctx context.Context, comm *collective.Comm, mine []byte, lengths []int) ([]manifest, error) {
	total := 0
	for _, n := range lengths {
		total += n
	}
	texts := make([]byte, total)
	if err := comm.AllGatherV(ctx, tensor.Of(texts), tensor.Of(mine), lengths); err != nil {
		return nil, err
	}
	all := make([]manifest, comm.Size())
	for r, n := range lengths {
		if err := json.Unmarshal(texts[:n], &all[r]); err != nil {
			return nil, blame(r, "sent an unreadable manifest: %v", err)
		}
		texts = texts[n:]
	}
	return all, nil
}

// verdict finds the rank to blame: the first that could not read its tensors, else the first that
// brings others than most ranks do.
func verdict(all []manifest) error {
	for r, m := range all {
		if m.Error != "" {
			return blame(r, "%s", m.Error)
		}
	}
	model, most := 0, 0
	for r := range all {
		n := 0
		for _, other := range all {
			if difference(all[r], other) == "" {
				n++
			}
		}
		if n > most {
			model, most = r, n
		}
	}
	for r, m := range all {
		if d := difference(m, all[model]); d != "" {
			return blame(r, "%s: %s on rank %d (%s)", m.File, d, model, all[model].File)
		}
	}
	return nil
}

// difference says in what m, which is sorted as well, is not like model, or "".
func difference(m, model manifest) string {
	byName := func(e entry, name string) int {
		switch {
		case e.Name < name:
			return -1
		case e.Name > name:
			return 1
		}
		return 0
	}
	for _, want := range model.Tensors {
		i, ok := slices.BinarySearchFunc(m.Tensors, want.Name, byName)
		if !ok {
			return fmt.Sprintf("tensor %q is missing, which is %v", want.Name, want)
		}
		if got := m.Tensors[i]; got.DType != want.DType || !slices.Equal(got.Shape, want.Shape) {
			return fmt.Sprintf("tensor %q is %v, but %v", want.Name, got, want)
		}
	}
	for _, got := range m.Tensors {
		if _, ok := slices.BinarySearchFunc(model.Tensors, got.Name, byName); !ok {
			return fmt.Sprintf("tensor %q, %v, does not exist", got.Name, got)
		}
	}
	return ""
}
