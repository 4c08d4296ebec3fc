// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/hex"
	"math/rand/v2"
)

// changesPerCycle is how many durable changes an attach with its detach is.
const changesPerCycle = 5

// client attaches and detaches one volume at one instance, over and over, by the
// calls that a daemon makes.
type client struct {
	*conn
	volume, instance string
	device           string
	random           *rand.Rand
	attachment       string
	op               string
	step             int
	body             []byte
}

// Change makes the next of the changes.
func (c *client) Change() error {
	if c.step == 0 {
		c.attachment, c.op = newID(c.random), newID(c.random)
	}
	path, key := "/v1/attachments", c.op+"."
	token := `,"host":"` + c.host.id + `","epoch":1,"op_id":"` + c.op + `"`
	c.body = c.body[:0]
	switch c.step {
	case 0:
		key += "reserve"
		c.body = append(c.body, `{"id":"`+c.attachment+`","volume_id":"`+c.volume+`","instance_id":"`+c.instance+`","device":"`+c.device+`","mode":"rw","generation":1`+token+`}`...)
	case 1:
		path, key = path+"/"+c.attachment+"/transition", key+"connect"
		c.body = append(c.body, `{"from":["reserved"],"to":"attaching"`+token+`}`...)
	case 2:
		path, key = path+"/"+c.attachment+"/transition", key+"complete"
		c.body = append(c.body, `{"from":["attaching"],"to":"attached"`+token+`}`...)
	case 3:
		path, key = path+"/"+c.attachment+"/transition", key+"begin"
		c.body = append(c.body, `{"from":["attached"],"to":"detaching"`+token+`}`...)
	case 4:
		path, key = path+"/"+c.attachment+"/release", key+"release"
		c.body = append(c.body, `{`+token[1:]+`}`...)
	}
	if _, err := c.post(path, key, c.body); err != nil {
		return err
	}
	c.step = (c.step + 1) % changesPerCycle
	return nil
}

// Idle says that the volume is attached nowhere.
func (c *client) Idle() bool { return c.step == 0 }

// newID is a random UUID.
func newID(random *rand.Rand) string {
	var b [16]byte
	for i := range 2 {
		v := random.Uint64()
		for j := range 8 {
			b[8*i+j] = byte(v >> (8 * j))
		}
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	var text [36]byte
	hex.Encode(text[:8], b[:4])
	hex.Encode(text[9:13], b[4:6])
	hex.Encode(text[14:18], b[6:8])
	hex.Encode(text[19:23], b[8:10])
	hex.Encode(text[24:], b[10:])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}
