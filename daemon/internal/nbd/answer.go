// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// answer reads one reply, or one chunk of a structured reply. After an error the connection must
// end, because the next reply's start is unknown.
func (e *Export) answer() error {
	var magic uint32
	if err := e.c.read(&magic); err != nil {
		return err
	}
	switch {
	case magic == simpleMagic:
		return e.simple()
	case magic == structuredMagic && e.structured:
		return e.chunk()
	}
	return errors.New("the server answers with something else than a reply")
}

func (e *Export) simple() error {
	var head struct {
		Code   uint32
		Cookie uint64
	}
	if err := e.c.read(&head); err != nil {
		return err
	}
	c, err := e.find(head.Cookie)
	switch {
	case err != nil:
		return err
	case head.Code != 0:
		c.err = serverError(head.Code, nil)
	case c.command == commandRead && e.structured, c.command == commandBlockStatus:
		return errors.New("the server answers a structured request with a simple reply")
	case c.command == commandRead:
		if _, err := io.ReadFull(e.c.in, c.p); err != nil {
			return err
		}
		c.filled = spans{{0, c.n}}
	}
	e.end(head.Cookie, c)
	return nil
}

func (e *Export) chunk() error {
	var head chunkHead
	if err := e.c.read(&head); err != nil {
		return err
	}
	c, err := e.find(head.Cookie)
	if err != nil {
		return err
	}
	switch {
	case head.Kind&chunkError != 0:
		err = e.failed(c, head.Bytes)
	case head.Kind == chunkOffsetData && c.command == commandRead:
		err = e.data(c, head.Bytes)
	case head.Kind == chunkOffsetHole && c.command == commandRead:
		err = e.hole(c, head.Bytes)
	case head.Kind == chunkBlockStatus && c.command == commandBlockStatus:
		err = e.status(c, head.Bytes)
	case head.Kind == chunkNone && head.Bytes == 0:
	default:
		err = fmt.Errorf("the server answers with a chunk of type %d and %d bytes", head.Kind, head.Bytes)
	}
	if err == nil && head.Flags&chunkDone != 0 {
		e.end(head.Cookie, c)
	}
	return err
}

func (e *Export) failed(c *call, n uint32) error {
	payload, err := e.c.payload(n)
	switch {
	case err != nil:
		return err
	case len(payload) < 6 || int(binary.BigEndian.Uint16(payload[4:])) > len(payload)-6:
		return errors.New("the server answers with half an error")
	}
	c.err = serverError(binary.BigEndian.Uint32(payload), payload[6:6+binary.BigEndian.Uint16(payload[4:])])
	return nil
}

// part returns the part of a read's buffer that a chunk fills. It refuses bytes that an earlier
// chunk has filled: they would be counted instead of missing bytes.
func (c *call) part(off uint64, n int64) ([]byte, error) {
	at := int64(off) - c.off
	if int64(off) < 0 || at < 0 || n <= 0 || n > c.n-at {
		return nil, errors.New("the server answers with bytes that were not asked for")
	}
	if err := c.filled.add(span{at, at + n}); err != nil {
		return nil, err
	}
	return c.p[at : at+n], nil
}

func (e *Export) data(c *call, n uint32) error {
	var off uint64
	if err := e.c.read(&off); err != nil {
		return err
	}
	part, err := c.part(off, int64(n)-8)
	if err == nil {
		_, err = io.ReadFull(e.c.in, part)
	}
	return err
}

func (e *Export) hole(c *call, n uint32) error {
	var at struct {
		Offset uint64
		Bytes  uint32
	}
	if n != 12 {
		return errors.New("the server answers with half a hole")
	}
	if err := e.c.read(&at); err != nil {
		return err
	}
	part, err := c.part(at.Offset, int64(at.Bytes))
	clear(part)
	return err
}

func (e *Export) status(c *call, n uint32) error {
	payload, err := e.c.payload(n)
	if err != nil {
		return err
	}
	of, extents, err := e.c.extentsOf(payload)
	switch {
	case err != nil:
		return err
	case c.extents[of] != nil:
		return errors.New("the server answers twice")
	case c.extents == nil:
		c.extents = map[string][]extent{}
	}
	c.extents[of] = extents
	return nil
}
