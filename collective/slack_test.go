package collective_test

import "flag"

var thorough = flag.Bool("thorough", false, "run campaigns at length")

// slack stretches bounds on a machine that is busy with other tests.
const slack = 5
