// SPDX-License-Identifier: Apache-2.0

package subject

import (
	"github.com/volferry/volferry/daemon/internal/op"
	"github.com/volferry/volferry/daemon/internal/request"
)

// Subject is the instance of an op. Every input has one.
type Subject struct {
	request.Body
	InstanceID   string `json:"instance_id"`
	InstanceName string `json:"instance_name"`
	// Host and Epoch are the fencing tokens of the op.
	Host     string `json:"host"`
	HostName string `json:"host_name"`
	Epoch    int64  `json:"epoch"`
	// Whole is true if the op excludes all other changes of the instance, and false if it excludes
	// only starts, stops and pauses.
	Whole bool `json:"whole,omitempty"`
}

// Keys implements request.Input.
func (s *Subject) Keys() []string {
	if s.Whole {
		return []string{request.PowerKey(s.InstanceID), request.InstanceKey(s.InstanceID)}
	}
	return []string{request.PowerKey(s.InstanceID)}
}

// Group implements request.Input.
func (s *Subject) Group() string { return s.InstanceID }

// Step returns an op.Step; undo and observe may be nil.
func Step[I any](name string, do, undo op.DoFunc[I], observe op.ObserveFunc[I]) op.Step {
	return op.StepOf(op.InputOf[I], name, do, undo, observe)
}
