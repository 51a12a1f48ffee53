package collective

import "unsafe"

// within returns where b begins inside outer, if it lies in it whole. An empty b lies nowhere.
func within(outer, b []byte) (offset int, ok bool) {
	if len(b) == 0 || len(outer) < len(b) {
		return 0, false
	}
	o, p := uintptr(unsafe.Pointer(&outer[0])), uintptr(unsafe.Pointer(&b[0]))
	if p < o || p-o > uintptr(len(outer)-len(b)) {
		return 0, false
	}
	return int(p - o), true
}
