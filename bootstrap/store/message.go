package store

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// What a request asks for.
const (
	verbSet = iota + 1
	verbGet
	verbCompareAndSet
	verbDelete
)

// How a reply begins.
const (
	statusOK = iota
	statusConflict
	statusError
)

const (
	maxMessage = 2*MaxValue + MaxKey + 64 // bytes of a request or reply
	maxPending = 256                      // requests of a client that wait at a time
)

var errMessage = errors.New("store: malformed message")

// request is the payload of a Request frame. Its value is what is to be stored.
type request struct {
	verb       uint8
	key        string
	old, value []byte // old nil: no value is expected
}

// append writes r behind b.
func (r request) append(b []byte) []byte {
	expects := byte(0)
	if r.old != nil {
		expects = 1
	}
	b = append(b, r.verb, expects)
	b = binary.BigEndian.AppendUint16(b, uint16(len(r.key)))
	b = append(b, r.key...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(r.old)))
	b = append(b, r.old...)
	return append(b, r.value...)
}

func parseRequest(b []byte) (request, error) {
	if len(b) < 4 {
		return request{}, errMessage
	}
	r := request{verb: b[0]}
	expects, keyLen := b[1], int(binary.BigEndian.Uint16(b[2:]))
	b = b[4:]
	if r.verb < verbSet || r.verb > verbDelete || expects > 1 || len(b) < keyLen+4 {
		return request{}, errMessage
	}
	r.key = string(b[:keyLen])
	oldLen := int64(binary.BigEndian.Uint32(b[keyLen:]))
	b = b[keyLen+4:]
	if int64(len(b)) < oldLen || expects == 0 && oldLen > 0 {
		return request{}, errMessage
	}
	if expects == 1 {
		r.old = b[:oldLen:oldLen]
	}
	r.value = b[oldLen:]
	return r, nil
}

// reply is the payload of a Reply frame: a status, then a value or a text.
type reply struct {
	status uint8
	value  []byte
}

func (r reply) append(b []byte) []byte { return append(append(b, r.status), r.value...) }

func parseReply(b []byte) (reply, error) {
	if len(b) < 1 || b[0] > statusError {
		return reply{}, errMessage
	}
	return reply{b[0], b[1:]}, nil
}

// result turns a reply into what a Store's method returns.
func (r reply) result() ([]byte, error) {
	switch r.status {
	case statusOK:
		return r.value, nil
	case statusConflict:
		return nil, fmt.Errorf("%w (said the server: %s)", ErrConflict, r.value)
	}
	return nil, fmt.Errorf("store: the server says: %s", r.value)
}
