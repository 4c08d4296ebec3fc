// SPDX-License-Identifier: Apache-2.0

package session

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/internal/routes"
)

// Names returns the names of a collection by id, for tables. For other output, or an unreadable
// collection, it returns nil: ids are shown.
func Names(ctx context.Context, s *Session, collection string) map[string]string {
	if s.JSON || s.Quiet {
		return nil
	}
	return LoadNames(ctx, s, collection)
}

// LoadNames is Names for any output.
func LoadNames(ctx context.Context, s *Session, collection string) map[string]string {
	things, _, err := List(ctx, s, CollectionRoute(collection))
	if err != nil {
		return nil
	}
	out := make(map[string]string, len(things))
	for _, t := range things {
		out[t.ID] = t.Name
	}
	return out
}

// NameAndID is common to the things in every collection; some have no name.
type NameAndID struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

// CollectionRoute returns the route that lists a collection, decoded as ids and names.
func CollectionRoute(collection string) (list routes.Route[routes.None, []NameAndID]) {
	for _, d := range routes.All() {
		if d.Path == "/v1/"+collection && d.Method == http.MethodGet {
			list.Declaration = d
		}
	}
	return list
}

var idPattern = regexp.MustCompile(fmt.Sprintf(`^[0-9a-f]{%d,}[0-9a-f-]*$`, api.MinIDPrefix))

// NameOf returns the name of the thing with the id or id prefix ref, otherwise ref.
func (s *Session) NameOf(ctx context.Context, collection, ref string) string {
	if !idPattern.MatchString(ref) {
		return ref
	}
	byID := Names(ctx, s, collection)
	found := api.Lookup(slices.Collect(maps.Keys(byID)), ref, func(id *string) (string, string) { return *id, byID[*id] })
	if len(found) != 1 {
		return ref
	}
	return NameOr(byID, found[0])
}

// NameOr returns the name of id, or id if it has no name.
func NameOr(names map[string]string, id string) string {
	return cmp.Or(names[id], id)
}
