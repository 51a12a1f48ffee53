package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/gccl/gccl/tensor"
)

// info is what the header says of a tensor.
type info struct {
	name       string
	dtype      tensor.DType
	shape      []int
	begin, end uint64 // of its data, from the end of the header
}

// parseHeader reads the header: an object, which begins at once and is followed by spaces only, of
// distinct names. One of them may be that of the metadata, an object of strings.
func parseHeader(b []byte) ([]info, error) {
	if len(b) == 0 || b[0] != '{' {
		return nil, errors.New("header: it does not begin with '{'")
	}
	if !utf8.Valid(b) {
		return nil, errors.New("header: not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	var infos []info
	seen := map[string]bool{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, fmt.Errorf("header: %w", err)
		}
		name, ok := t.(string)
		if !ok {
			return nil, errors.New("header: not an object")
		}
		if seen[name] {
			return nil, fmt.Errorf("header: tensor %q is there twice", name)
		}
		seen[name] = true
		if name == metadata {
			var m map[string]string
			if err := d.Decode(&m); err != nil {
				return nil, fmt.Errorf("header: %s: %w", metadata, err)
			}
			continue
		}
		in, err := parseInfo(d, name)
		if err != nil {
			return nil, fmt.Errorf("header: tensor %q: %w", name, err)
		}
		infos = append(infos, in)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	if rest := b[d.InputOffset():]; len(bytes.Trim(rest, " ")) > 0 {
		return nil, errors.New("header: text after the object")
	}
	return infos, nil
}

func parseInfo(d *json.Decoder, name string) (info, error) {
	var raw struct {
		DType   *string   `json:"dtype"`
		Shape   *[]int    `json:"shape"`
		Offsets *[]uint64 `json:"data_offsets"`
	}
	if err := d.Decode(&raw); err != nil {
		return info{}, err
	}
	if raw.DType == nil || raw.Shape == nil || raw.Offsets == nil {
		return info{}, errors.New("dtype, shape or data_offsets is missing")
	}
	dt, ok := dtypes[*raw.DType]
	if !ok {
		return info{}, fmt.Errorf("element type %q cannot be reduced", *raw.DType)
	}
	for _, n := range *raw.Shape {
		if n < 0 {
			return info{}, fmt.Errorf("shape %v", *raw.Shape)
		}
	}
	if len(*raw.Offsets) != 2 {
		return info{}, fmt.Errorf("data_offsets has %d numbers, not 2", len(*raw.Offsets))
	}
	return info{name, dt, *raw.Shape, (*raw.Offsets)[0], (*raw.Offsets)[1]}, nil
}

// Layout plans a file: what precedes the data, and the order of the tensors' data, which is that of the
// reference implementation: long elements first, then by name, so that all elements are aligned.
// Names must be distinct.
func Layout(tensors []Tensor) (header []byte, order []Tensor, err error) {
	order = slices.Clone(tensors)
	slices.SortFunc(order, func(x, y Tensor) int {
		return cmp.Or(cmp.Compare(y.Data.DType().Size(), x.Data.DType().Size()), cmp.Compare(x.Name, y.Name))
	})
	type entry struct {
		DType   string `json:"dtype"`
		Shape   []int  `json:"shape"`
		Offsets [2]int `json:"data_offsets"`
	}
	all := map[string]entry{}
	at := 0
	for _, t := range order {
		if _, twice := all[t.Name]; twice || t.Name == metadata {
			return nil, nil, fmt.Errorf("tensor %q: the name is taken", t.Name)
		}
		e := entry{Shape: t.Shape, Offsets: [2]int{at, at + len(t.Data.Bytes())}}
		if e.Shape == nil {
			e.Shape = []int{}
		}
		for name, dt := range dtypes {
			if dt == t.Data.DType() {
				e.DType = name
			}
		}
		if e.DType == "" {
			return nil, nil, fmt.Errorf("tensor %q: the safetensors format has no %v", t.Name, t.Data.DType())
		}
		at = e.Offsets[1]
		all[t.Name] = e
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, nil, err
	}
	for len(text)%headerWord != 0 {
		text = append(text, ' ')
	}
	if len(text) > maxHeader {
		return nil, nil, fmt.Errorf("the header would be %d bytes long, at most %d are allowed", len(text), maxHeader)
	}
	return append(binary.LittleEndian.AppendUint64(nil, uint64(len(text))), text...), order, nil
}
