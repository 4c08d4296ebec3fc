// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// answer is a JSON document, {"schema_version":1,"<noun>":…}, whose members
// stay as they came: -o json prints what this version does not know, too.
type answer struct{ members map[string]json.RawMessage }

// newAnswer reads what the client hands over: the whole document where it has
// several nouns, the bare value where it has one. A bare value is what was asked
// for, unless it is an op, which may stand in for anything that lasts.
func newAnswer(noun string, value json.RawMessage) (answer, error) {
	var members map[string]json.RawMessage
	if len(value) > 0 && value[0] == '{' {
		if err := json.Unmarshal(value, &members); err != nil {
			return answer{}, fmt.Errorf("decode the answer: %w", err)
		}
	}
	if members["schema_version"] != nil {
		return answer{members: members}, nil
	}
	if members["kind"] != nil {
		noun = "op"
	}
	return answer{}.with(noun, value), nil
}

// with is a with one member more, or another one in its place.
func (a answer) with(noun string, member json.RawMessage) answer {
	members := maps.Clone(a.members)
	if members == nil {
		members = map[string]json.RawMessage{"schema_version": json.RawMessage(strconv.Itoa(api.SchemaVersion))}
	}
	members[noun] = member
	return answer{members: members}
}

func (a answer) has(noun string) bool {
	member, ok := a.members[noun]
	return ok && string(member) != "null"
}

// decode reads the member called noun. One that is missing is an error: the
// other side speaks of something else.
func (a answer) decode(noun string, out any) error {
	if !a.has(noun) {
		return fmt.Errorf("the answer has no %q; is the other side another version?", noun)
	}
	if err := json.Unmarshal(a.members[noun], out); err != nil {
		return fmt.Errorf("decode %s: %w", noun, err)
	}
	return nil
}

// get asks what refs name.
func get[Out any](ctx context.Context, s *session, route routes.Route[routes.None, Out], refs ...string) (answer, error) {
	return s.call(ctx, route.Method, route.PathOf(refs...), route.Noun, nil)
}

// send asks for a mutation of what refs name, once, whatever becomes of the connection.
func send[In, Out any](ctx context.Context, s *session, route routes.Route[In, Out], in In, refs ...string) (answer, error) {
	return s.change(ctx, route.Method, route.PathOf(refs...), route.Noun, route.Body(in))
}

// list is a collection, decoded, with the answer that it came in.
func list[T any](ctx context.Context, s *session, route routes.Route[routes.None, []T]) ([]T, answer, error) {
	a, err := get(ctx, s, route)
	if err != nil {
		return nil, answer{}, err
	}
	var things []T
	if a.has(route.Noun) {
		err = a.decode(route.Noun, &things)
	}
	return things, a, err
}

// show is one thing, decoded, with the answer that it came in.
func show[T any](ctx context.Context, s *session, route routes.Route[routes.None, T], refs ...string) (*T, answer, error) {
	a, err := get(ctx, s, route, refs...)
	if err != nil {
		return nil, answer{}, err
	}
	thing := new(T)
	return thing, a, a.decode(route.Noun, thing)
}

// change asks for a mutation that is done at once, and is the thing as it is then,
// decoded, with the answer that it came in.
func change[In, T any](ctx context.Context, s *session, route routes.Route[In, T], in In, refs ...string) (*T, answer, error) {
	a, err := send(ctx, s, route, in, refs...)
	if err != nil {
		return nil, answer{}, err
	}
	thing := new(T)
	return thing, a, a.decode(route.Noun, thing)
}

// showAtLast is show for what a command has waited for: it outlasts an other side
// that is away for the moment, as the waiting did.
func showAtLast[T any](ctx context.Context, s *session, route routes.Route[routes.None, T], refs ...string) (thing *T, a answer, err error) {
	err = outlast(ctx, func() error {
		thing, a, err = show(ctx, s, route, refs...)
		return err
	})
	return thing, a, err
}

// names maps the ids of a collection to names, for tables that would otherwise
// show ids only. It is a courtesy: what cannot be had stays an id.
func names(ctx context.Context, s *session, nouns string) map[string]string {
	if s.json || s.quiet {
		return nil
	}
	return namesAnyway(ctx, s, nouns)
}

// namesAnyway is names also where no table is printed.
func namesAnyway(ctx context.Context, s *session, nouns string) map[string]string {
	things, _, err := list(ctx, s, collection(nouns))
	if err != nil {
		return nil
	}
	out := make(map[string]string, len(things))
	for _, t := range things {
		out[t.ID] = t.Name
	}
	return out
}

// nameAndID is what all collections have of a thing; some have no names.
type nameAndID struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// collection is the route that lists things, whatever else it says of them.
func collection(nouns string) (list routes.Route[routes.None, []nameAndID]) {
	for _, d := range routes.All() {
		if d.Path == "/v1/"+nouns && d.Method == http.MethodGet {
			list.Declaration = d
		}
	}
	return list
}

// idPattern is an id, or a beginning of one that is long enough to be meant so.
var idPattern = regexp.MustCompile(`^[0-9a-f]{4,}[0-9a-f-]*$`)

// called is the name of what the user named by ref, where that is an id or the
// beginning of one; else ref itself.
func (s *session) called(ctx context.Context, nouns, ref string) string {
	if !idPattern.MatchString(ref) {
		return ref
	}
	byID := names(ctx, s, nouns)
	found := api.Lookup(slices.Collect(maps.Keys(byID)), ref, func(id *string) (string, string) { return *id, byID[*id] })
	if len(found) != 1 {
		return ref
	}
	return nameOr(byID, found[0])
}

// nameIn is the name of the noun in an answer, or instead where it has none.
func (a answer) nameIn(noun, instead string) string {
	var named struct {
		Name string `json:"name"`
	}
	if a.decode(noun, &named) != nil || named.Name == "" {
		return instead
	}
	return named.Name
}

// nameOr is the name of id, or id itself.
func nameOr(names map[string]string, id string) string {
	if n := names[id]; n != "" {
		return n
	}
	return id
}
