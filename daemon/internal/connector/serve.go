// SPDX-License-Identifier: Apache-2.0

package connector

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Handler executes one verb. Its errors are *Error; any other error becomes CodeFailed.
type Handler func(ctx context.Context, in Request) (Answer, error)

// Serve runs a connector: it reads a request, calls handle, and writes the answer. It returns only
// errors of stdin and stdout.
func Serve(ctx context.Context, stdin io.Reader, stdout io.Writer, handle Handler) error {
	out := answer(ctx, stdin, handle)
	out.Protocol = Protocol
	text, err := json.Marshal(out)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	_, err = stdout.Write(append(text, '\n'))
	return err
}

func answer(ctx context.Context, stdin io.Reader, handle Handler) Answer {
	refused := func(err error) Answer {
		var e *Error
		if !errors.As(err, &e) {
			e = Errorf(CodeFailed, "%v", err)
		}
		return Answer{Error: e}
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxTextBytes))
	if err != nil {
		return refused(err)
	}
	var in Request
	if err := json.Unmarshal(text, &in); err != nil {
		return refused(Errorf(CodeInvalid, "the request is no JSON object: %v", err))
	}
	if err := in.check(); err != nil {
		return refused(err)
	}
	out, err := handle(ctx, in)
	if err != nil {
		return refused(err)
	}
	return out
}

func (in Request) check() error {
	switch {
	case in.Protocol != Protocol:
		return Errorf(CodeProtocol, "the request is of protocol %d, and this connector knows %d", in.Protocol, Protocol)
	case !slices.Contains(Verbs, in.Verb):
		return Errorf(CodeUnsupported, "there is no verb %.40q here", in.Verb)
	case in.Verb != VerbInspect && in.OpID == "":
		return Errorf(CodeInvalid, "%s needs an op_id", in.Verb)
	case in.Verb != VerbInspect && in.Volume == "":
		return Errorf(CodeInvalid, "%s needs a volume", in.Verb)
	case (in.Verb == VerbCreate || in.Verb == VerbExtend) && in.SizeBytes <= 0:
		return Errorf(CodeInvalid, "%s needs a size_bytes", in.Verb)
	case slices.Contains([]string{VerbExtend, VerbCopy, VerbDisconnect, VerbDelete}, in.Verb) && in.Identity == "":
		return Errorf(CodeInvalid, "%s needs an identity", in.Verb)
	}
	names := []string{in.Volume}
	if in.Verb == VerbCopy {
		if err := in.checkCopy(); err != nil {
			return err
		}
		names = append(names, in.Source.Volume)
	}
	for _, name := range names {
		if name == "" {
			continue
		}
		if err := CheckVolumeName(name); err != nil {
			return Errorf(CodeInvalid, "%v", err)
		}
	}
	return nil
}

func (in Request) checkCopy() error {
	src := in.Source
	switch {
	case src == nil || src.Volume == "" || src.Identity == "" || src.SizeBytes <= 0:
		return Errorf(CodeInvalid, "copy needs a source with volume, identity and size_bytes")
	case src.Volume == in.Volume || src.Identity == in.Identity:
		return Errorf(CodeInvalid, "the source is the volume itself")
	case in.OffsetBytes < 0 || in.LengthBytes <= 0 || in.LengthBytes > src.SizeBytes-in.OffsetBytes:
		return Errorf(CodeInvalid, "there are no %d bytes from %d on in a volume of %d", in.LengthBytes, in.OffsetBytes, src.SizeBytes)
	}
	return nil
}
