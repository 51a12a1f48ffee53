package tensor_test

import (
	"fmt"

	"github.com/gccl/gccl/tensor"
)

func ExampleReducer() {
	a, b, c := []float32{1, 2}, []float32{3, 4}, []float32{5, 9}
	r, err := tensor.NewReducer(tensor.Float32, tensor.Avg, 3)
	if err != nil {
		fmt.Println(err)
		return
	}
	var parts [][]byte
	for _, contribution := range [][]float32{a, b, c} {
		part := tensor.Of(contribution).Bytes()
		r.Pre(part, part)
		parts = append(parts, part)
	}
	r.Reduce(parts[:1], parts) // in place, on the first
	r.Post(parts[0])
	fmt.Println(a)
	// Output: [3 5]
}

func ExamplePart() {
	for i := range 3 {
		lo, hi := tensor.Part(10, 3, i)
		fmt.Print(lo, "-", hi, " ")
	}
	// Output: 0-4 4-7 7-10
}
