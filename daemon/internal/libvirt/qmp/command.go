// SPDX-License-Identifier: Apache-2.0

// Package qmp has the commands of QEMU's monitor, and reads its answers.
package qmp

import "encoding/json"

// Command is a command of the monitor with its arguments.
type Command struct {
	Execute   string `json:"execute"`
	Arguments any    `json:"arguments,omitempty"`
}

// RefusedError is QEMU's refusal of a command: it understood the command, and did nothing.
type RefusedError struct {
	Execute string `json:"-"`
	Class   string `json:"class"`
	Desc    string `json:"desc"`
}

func (e *RefusedError) Error() string { return "QEMU refuses " + e.Execute + ": " + e.Desc }

// Decode decodes the result in the answer to the command into out, unless out is nil. It returns a
// RefusedError if QEMU refused the command.
func (c Command) Decode(answer string, out any) error {
	var reply struct {
		Return json.RawMessage `json:"return"`
		Error  *RefusedError   `json:"error"`
	}
	if err := json.Unmarshal([]byte(answer), &reply); err != nil {
		return err
	}
	if reply.Error != nil {
		reply.Error.Execute = c.Execute
		return reply.Error
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(reply.Return, out)
}
