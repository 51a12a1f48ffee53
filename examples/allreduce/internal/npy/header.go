package npy

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// header is the dictionary that describes the array.
type header struct {
	descr   string
	fortran bool
	shape   []int
}

// parseHeader reads a Python dictionary of exactly the keys descr, fortran_order and shape, in any
// order, followed by white space only.
func parseHeader(text string) (h header, err error) {
	s := &scanner{text: text}
	defer func() {
		if err != nil {
			err = fmt.Errorf("header: %w", err)
		}
	}()
	if err := s.expect('{'); err != nil {
		return h, err
	}
	seen := map[string]bool{}
	for s.peek() != '}' {
		key, err := s.str()
		if err != nil {
			return h, err
		}
		if seen[key] {
			return h, fmt.Errorf("%s is there twice", key)
		}
		seen[key] = true
		if err := s.expect(':'); err != nil {
			return h, err
		}
		switch key {
		case "descr":
			if s.peek() == '[' {
				return h, errors.New("the element type is a structure, not a number")
			}
			h.descr, err = s.str()
		case "fortran_order":
			h.fortran, err = s.boolean()
		case "shape":
			h.shape, err = s.tuple()
		default:
			err = fmt.Errorf("unknown key %q", key)
		}
		if err != nil {
			return h, err
		}
		if s.peek() != '}' {
			if err := s.expect(','); err != nil {
				return h, err
			}
		}
	}
	s.at++
	if s.peek() != 0 || s.at < len(s.text) {
		return h, errors.New("text after the dictionary")
	}
	for _, key := range []string{"descr", "fortran_order", "shape"} {
		if !seen[key] {
			return h, fmt.Errorf("%s is missing", key)
		}
	}
	return h, nil
}

// scanner reads the few Python literals that occur.
type scanner struct {
	text string
	at   int
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.at < len(s.text) && strings.IndexByte(" \t\r\n", s.text[s.at]) >= 0 {
		s.at++
	}
	if s.at == len(s.text) {
		return 0
	}
	return s.text[s.at]
}

func (s *scanner) expect(c byte) error {
	if got := s.peek(); got != c || s.at == len(s.text) {
		return fmt.Errorf("want %q at byte %d", c, s.at)
	}
	s.at++
	return nil
}

// str reads a string without escapes.
func (s *scanner) str() (string, error) {
	quote := s.peek()
	if quote != '\'' && quote != '"' {
		return "", fmt.Errorf("want a string at byte %d", s.at)
	}
	rest := s.text[s.at+1:]
	end := strings.IndexByte(rest, quote)
	if end < 0 || strings.IndexByte(rest[:end], '\\') >= 0 {
		return "", fmt.Errorf("want a plain string at byte %d", s.at)
	}
	s.at += end + 2
	return rest[:end], nil
}

func (s *scanner) boolean() (bool, error) {
	s.peek()
	for _, word := range []string{"True", "False"} {
		if strings.HasPrefix(s.text[s.at:], word) {
			s.at += len(word)
			return word == "True", nil
		}
	}
	return false, fmt.Errorf("want True or False at byte %d", s.at)
}

// tuple reads (), (3,) or (3, 4), with the L that Python 2 wrote after long numbers.
func (s *scanner) tuple() ([]int, error) {
	if err := s.expect('('); err != nil {
		return nil, err
	}
	shape := []int{}
	comma := true
	for s.peek() != ')' {
		if !comma {
			return nil, fmt.Errorf("want a comma at byte %d", s.at)
		}
		start := s.at
		for s.at < len(s.text) && s.text[s.at] >= '0' && s.text[s.at] <= '9' {
			s.at++
		}
		n, err := strconv.ParseInt(s.text[start:s.at], 10, strconv.IntSize)
		if err != nil {
			return nil, fmt.Errorf("want a length at byte %d", start)
		}
		if len(shape) == maxDims {
			return nil, fmt.Errorf("more than %d dimensions", maxDims)
		}
		shape = append(shape, int(n))
		if s.at < len(s.text) && s.text[s.at] == 'L' {
			s.at++
		}
		if comma = s.peek() == ','; comma {
			s.at++
		}
	}
	s.at++
	if len(shape) == 1 && !comma {
		return nil, fmt.Errorf("the shape (%d) is no tuple", shape[0])
	}
	return shape, nil
}
