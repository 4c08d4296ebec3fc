// SPDX-License-Identifier: Apache-2.0

package nbd

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// The numbers of the protocol (doc/proto.md of the NBD project).
const (
	serverMagic      = 0x4e42444d41474943 // "NBDMAGIC"
	optionMagic      = 0x49484156454f5054 // "IHAVEOPT"
	optionReplyMagic = 0x3e889045565a9
	requestMagic     = 0x25609513
	structuredMagic  = 0x668e33ef

	handshakeFixed    = 1 << 0
	handshakeNoZeroes = 1 << 1

	optionGo              = 7
	optionStructuredReply = 8
	optionSetMetaContext  = 10

	replyAck         = 1
	replyInfo        = 3
	replyMetaContext = 4
	replyError       = 1 << 31

	infoExport = 0

	commandRead        = 0
	commandWrite       = 1
	commandDisconnect  = 2
	commandFlush       = 3
	commandWriteZeroes = 6
	commandBlockStatus = 7

	// The capabilities of an export.
	flagReadOnly    = 1 << 1
	flagFlush       = 1 << 2
	flagWriteZeroes = 1 << 6

	simpleMagic = 0x67446698

	chunkDone        = 1 << 0
	chunkNone        = 0
	chunkOffsetData  = 1
	chunkOffsetHole  = 2
	chunkBlockStatus = 5
	chunkError       = 1 << 15
)

type requestHead struct {
	Magic          uint32
	Flags, Command uint16
	Cookie, Offset uint64
	Bytes          uint32
}

type chunkHead struct {
	Flags, Kind uint16
	Cookie      uint64
	Bytes       uint32
}

type refusal struct {
	code    uint32
	message []byte
}

func (e *refusal) Error() string {
	return fmt.Sprintf("the server refuses: error %d %q", e.code, e.message)
}

// maxPayloadBytes is the largest payload of one answer: QEMU sends at most 128 Ki extents.
const maxPayloadBytes = 4 << 20

type client struct {
	in        *bufio.Reader
	out       io.Writer
	contexts  map[uint32]string
	sizeBytes int64
	flags     uint16 // the export's capabilities
	cookie    uint64
}

func newClient(conn io.ReadWriter) *client {
	return &client{in: bufio.NewReader(conn), out: conn}
}

type extent struct {
	bytes uint32
	flags uint32
}

func (c *client) greet() error {
	var hello struct {
		Magic, Option uint64
		Flags         uint16
	}
	if err := c.read(&hello); err != nil {
		return err
	}
	if hello.Magic != serverMagic || hello.Option != optionMagic || hello.Flags&handshakeFixed == 0 {
		return errors.New("this is no NBD server of today")
	}
	return c.write(uint32(hello.Flags & (handshakeFixed | handshakeNoZeroes)))
}

func (c *client) negotiate(export, metaContext string) error {
	if err := c.greet(); err != nil {
		return err
	}
	if err := c.option(optionStructuredReply, nil, nil); err != nil {
		return err
	}
	if err := c.choose(export, metaContext); err != nil {
		return err
	}
	return c.enter(export)
}

func (c *client) choose(export string, metaContexts ...string) error {
	query := appendText(nil, export)
	query = binary.BigEndian.AppendUint32(query, uint32(len(metaContexts)))
	for _, name := range metaContexts {
		query = appendText(query, name)
	}
	c.contexts = map[uint32]string{}
	err := c.option(optionSetMetaContext, query, func(kind uint32, data []byte) {
		if kind == replyMetaContext && len(data) >= 4 && slices.Contains(metaContexts, string(data[4:])) {
			c.contexts[binary.BigEndian.Uint32(data)] = string(data[4:])
		}
	})
	if err == nil && len(c.contexts) == 0 {
		err = errNoContext
	}
	return err
}

func (c *client) has(metaContext string) bool {
	return slices.Contains(slices.Collect(maps.Values(c.contexts)), metaContext)
}

var errNoContext = errors.New("the export has no such bitmap")

func (c *client) enter(export string) error {
	query := binary.BigEndian.AppendUint16(appendText(nil, export), 0)
	sized := false
	err := c.option(optionGo, query, func(kind uint32, data []byte) {
		if kind == replyInfo && len(data) >= 12 && binary.BigEndian.Uint16(data) == infoExport {
			c.sizeBytes, sized = int64(binary.BigEndian.Uint64(data[2:])), true
			c.flags = binary.BigEndian.Uint16(data[10:])
		}
	})
	if err == nil && (!sized || c.sizeBytes < 0) {
		err = errors.New("the server does not say how large the export is")
	}
	return err
}

func (c *client) option(option uint32, data []byte, take func(kind uint32, data []byte)) error {
	head := binary.BigEndian.AppendUint64(nil, optionMagic)
	head = binary.BigEndian.AppendUint32(head, option)
	head = binary.BigEndian.AppendUint32(head, uint32(len(data)))
	if _, err := c.out.Write(append(head, data...)); err != nil {
		return err
	}
	for {
		var reply struct {
			Magic               uint64
			Option, Kind, Bytes uint32
		}
		if err := c.read(&reply); err != nil {
			return err
		}
		if reply.Magic != optionReplyMagic || reply.Option != option {
			return errors.New("the server answers something else than was asked")
		}
		payload, err := c.payload(reply.Bytes)
		switch {
		case err != nil:
			return err
		case reply.Kind&replyError != 0:
			return &refusal{reply.Kind &^ replyError, payload}
		case reply.Kind == replyAck:
			return nil
		case take != nil:
			take(reply.Kind, payload)
		}
	}
}

// blockStatus requests the status of n bytes from off. The answer has at least one extent. Its
// extents begin at off, have no gaps, and may be shorter than requested.
func (c *client) blockStatus(off, n int64) ([]extent, error) {
	if err := c.request(commandBlockStatus, off, n); err != nil {
		return nil, err
	}
	var extents []extent
	for done := false; !done; {
		var head struct {
			Magic       uint32
			Flags, Kind uint16
			Cookie      uint64
			Bytes       uint32
		}
		if err := c.read(&head); err != nil {
			return nil, err
		}
		if head.Magic != structuredMagic || head.Cookie != c.cookie {
			return nil, errors.New("the server answers something else than was asked")
		}
		payload, err := c.payload(head.Bytes)
		if err != nil {
			return nil, err
		}
		switch {
		case head.Kind&chunkError != 0:
			return nil, fmt.Errorf("the server cannot say which blocks are dirty: %q", payload)
		case head.Kind == chunkBlockStatus && extents == nil:
			if _, extents, err = c.extentsOf(payload); err != nil {
				return nil, err
			}
		case head.Kind != chunkNone:
			return nil, fmt.Errorf("the server answers with a chunk of type %d", head.Kind)
		}
		done = head.Flags&chunkDone != 0
	}
	if len(extents) == 0 {
		return nil, errors.New("the server answers with no extent")
	}
	return extents, nil
}

func (c *client) extentsOf(payload []byte) (metaContext string, all []extent, err error) {
	if len(payload) < 4 || len(payload)%8 != 4 || c.contexts[binary.BigEndian.Uint32(payload)] == "" {
		return "", nil, errors.New("the server answers with extents of something else")
	}
	for p := payload[4:]; len(p) > 0; p = p[8:] {
		all = append(all, extent{binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])})
	}
	return c.contexts[binary.BigEndian.Uint32(payload)], all, nil
}

func (c *client) disconnect() error { return c.request(commandDisconnect, 0, 0) }

func (c *client) request(command uint16, off, n int64) error {
	c.cookie++
	return c.write(requestHead{requestMagic, 0, command, c.cookie, uint64(off), uint32(n)})
}

func (c *client) payload(n uint32) ([]byte, error) {
	if n > maxPayloadBytes {
		return nil, fmt.Errorf("the server answers with %d bytes", n)
	}
	data := make([]byte, n)
	_, err := io.ReadFull(c.in, data)
	return data, err
}

func (c *client) read(v any) error { return binary.Read(c.in, binary.BigEndian, v) }

func (c *client) write(v any) error { return binary.Write(c.out, binary.BigEndian, v) }

func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
}
