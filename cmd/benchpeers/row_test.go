package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParseGCCL(t *testing.T) {
	rows, err := parseGCCL([]byte(`{"collective":"allreduce","ranks":2,"size":1024,"count":256,"iters":7,"out_of_place":{"time":1.5,"nwrong":0},"in_place":{"time":1.2,"nwrong":3}}`))
	require.NoError(t, err)
	assert.Equal(t, []row{
		{Lib: "gccl", Coll: "allreduce", Ranks: 2, Bytes: 1024, Iters: 7, Time: 1.5},
		{Lib: "gccl", Coll: "allreduce", Ranks: 2, Bytes: 1024, Iters: 7, Time: 1.2, Wrong: 3, InPlace: true},
	}, rows)
}

// MPI's broadcast knows one buffer: ours is compared by the time of that.
func TestParseGCCLBroadcastInOneBuffer(t *testing.T) {
	rows, err := parseGCCL([]byte(`{"collective":"broadcast","ranks":2,"size":8,"iters":7,"out_of_place":{"time":1.5},"in_place":{"time":1.2}}`))
	require.NoError(t, err)
	assert.Equal(t, []row{{Lib: "gccl", Coll: "broadcast", Ranks: 2, Bytes: 8, Iters: 7, Time: 1.2}}, rows)
}

func TestParsePeer(t *testing.T) {
	for _, c := range []struct {
		line string
		want []row
	}{
		{
			`{"lib":"OpenMPI","version":"4.1.4","algo":"","coll":"barrier","ranks":4,"bytes":0,"inplace":0,"iters":3,"time_us":0.25,"wrong":0}`,
			[]row{{Config: "x", Lib: "OpenMPI", Version: "4.1.4", Coll: "barrier", Ranks: 4, Iters: 3, Time: 0.25}},
		},
		{
			`{"lib":"Gloo","version":"0.5.0","algo":"ring","coll":"allreduce","ranks":2,"bytes":8,"inplace":0,"iters":3,"time_us":80,"wrong":1}`,
			[]row{{Config: "x:ring", Lib: "Gloo", Version: "0.5.0", Coll: "allreduce", Ranks: 2, Bytes: 8, Iters: 3, Time: 80, Wrong: 1}},
		},
		{ // works in place only, and counts both ways
			`{"lib":"Gloo","version":"0.5.0","algo":"hd","coll":"allreduce","ranks":2,"bytes":8,"inplace":1,"iters":3,"time_us":70,"wrong":0}`,
			[]row{
				{Config: "x:hd", Lib: "Gloo", Version: "0.5.0", Coll: "allreduce", Ranks: 2, Bytes: 8, Iters: 3, Time: 70},
				{Config: "x:hd", Lib: "Gloo", Version: "0.5.0", Coll: "allreduce", Ranks: 2, Bytes: 8, Iters: 3, Time: 70, InPlace: true},
			},
		},
		{
			`{"lib":"Gloo","version":"0.5.0","algo":"new","coll":"broadcast","ranks":2,"bytes":8,"inplace":1,"iters":3,"time_us":70,"wrong":0}`,
			[]row{{Config: "x", Lib: "Gloo", Version: "0.5.0", Coll: "broadcast", Ranks: 2, Bytes: 8, Iters: 3, Time: 70}},
		},
	} {
		rows, err := parsePeer("x", []byte(c.line))
		require.NoError(t, err)
		assert.Equal(t, c.want, rows)
	}
}

func TestParseKeepsRowsAndComplaintsApart(t *testing.T) {
	j := &job{config: config{name: "ompi", lib: "OpenMPI", tcp: true}, round: 2, coll: "allgather", tries: 1}
	rows, complaints := parse(j, []byte("a warning\n"+
		`{"lib":"OpenMPI","coll":"allgather","ranks":2,"bytes":0,"time_us":1}`+"\n"+ // nothing for each rank
		`{"lib":"OpenMPI","coll":"allgather","ranks":2,"bytes":16,"time_us":1}`+"\n{}\n"))
	assert.Equal(t, []row{{Config: "ompi", Lib: "OpenMPI", TCP: true, Coll: "allgather", Ranks: 2, Bytes: 16, Time: 1, Round: 2, Try: 1}}, rows)
	assert.Equal(t, "a warning\n{}\n", string(complaints))
}

func TestReadRefusesWhatItDoesNotKnow(t *testing.T) {
	_, err := read(strings.NewReader(`{"config":"gccl","lib":"gccl"}` + "\n" + `{"other":1}`))
	assert.ErrorContains(t, err, "line 2")
	_, err = read(strings.NewReader("{"))
	assert.ErrorContains(t, err, "line 1")
}

func TestOutputIsReadBack(t *testing.T) {
	path := t.TempDir() + "/sub/rows.json"
	o, err := create(path)
	require.NoError(t, err)
	want := measurements{machine{CPU: "c", Cores: 2}, []bound{{Name: "read", Cores: 1, Value: 2, Unit: "GB/s", Place: "near"}}, []row{{Config: "gccl", Lib: "gccl", Coll: "barrier", Time: 3}}}
	require.NoError(t, o.put(want.machine))
	require.NoError(t, o.put(want.bounds[0]))
	require.NoError(t, o.put(want.rows[0]))
	require.NoError(t, o.close())
	got, err := read(bytes.NewReader([]byte(mustRead(t, path))))
	require.NoError(t, err)
	assert.Equal(t, &want, got)
}
