//go:build !cuda && linux && (amd64 || arm64) && !noverbs

package verbs_test

const withCUDA = false
