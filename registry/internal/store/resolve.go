// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"slices"
	"strings"

	"github.com/volferry/volferry/internal/api"
	"github.com/volferry/volferry/registry/internal/ledger"
	"github.com/volferry/volferry/registry/internal/validate"
)

// A Kind is a kind of named objects. Table and NameColumn are constants of this program, never part
// of a request.
type Kind struct {
	Noun       string
	Table      string
	NameColumn string
}

// The kinds of objects with rules in this package.
var (
	KindHost       = Kind{"host", "hosts", "name"}
	KindType       = Kind{"volume type", "volume_types", "name"}
	KindVolume     = Kind{"volume", "volumes", "name"}
	KindInstance   = Kind{"instance", "instances", "name"}
	KindAttachment = Kind{"attachment", "attachments", ""}
	KindMigration  = Kind{"migration", "migrations", ""}
)

// Resolve returns the id of the object that ref names by its id, or else by its name or the
// beginning of its id if only one object matches. A name never hides another object's id: hosts
// choose names, and people type the beginnings of ids.
func Resolve(ctx context.Context, q ledger.Querier, k Kind, ref string) (string, error) {
	if ref == "" {
		return "", validate.Invalid("the %s is missing", k.Noun)
	}
	exact, err := ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT id FROM "+k.Table+" WHERE id = ?1", ref)
	if err != nil {
		return "", err
	}
	if len(exact) == 1 {
		return exact[0], nil
	}
	var named, begun []string
	if k.NameColumn != "" {
		named, err = ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT id FROM "+k.Table+" WHERE "+k.NameColumn+" = ?1 ORDER BY id LIMIT 10", ref)
	}
	if err == nil && len(ref) >= api.MinIDPrefix {
		// A range, not LIKE: it uses the primary key and has no wildcards.
		begun, err = ledger.QueryAll(ctx, q, ledger.ScanString, "SELECT id FROM "+k.Table+" WHERE id >= ?1 AND id < ?1 || x'7f' ORDER BY id LIMIT 10", ref)
	}
	if err != nil {
		return "", err
	}
	begun = slices.DeleteFunc(begun, func(id string) bool { return slices.Contains(named, id) })
	switch ids := slices.Concat(named, begun); len(ids) {
	case 0:
		return "", api.NotFound(k.Noun, ref)
	case 1:
		return ids[0], nil
	default:
		return "", ambiguous(ctx, q, k, ref, named, begun)
	}
}

func ambiguous(ctx context.Context, q ledger.Querier, k Kind, ref string, named, begun []string) error {
	candidates := slices.Concat(named, begun)
	called, err := withHosts(ctx, q, k, candidates)
	if err != nil {
		return err
	}
	if len(named) == 0 || len(begun) == 0 {
		return api.Errorf(api.CodeInvalidArgument, "%s may be more than one %s: %s; give more of the id",
			validate.Quote(ref), k.Noun, strings.Join(called, ", ")).With("candidates", candidates)
	}
	return api.Errorf(api.CodeInvalidArgument, "%s is the name of the %s %s and the beginning of the id %s; give the whole id",
		validate.Quote(ref), k.Noun, strings.Join(called[:len(named)], ", "), strings.Join(called[len(named):], ", ")).With("candidates", candidates)
}

func withHosts(ctx context.Context, q ledger.Querier, k Kind, ids []string) ([]string, error) {
	called := slices.Clone(ids)
	hosts := "SELECT h.name FROM " + k.Table + " t JOIN hosts h ON h.id = t.host_id WHERE t.id = ?"
	switch k {
	case KindVolume:
	case KindInstance: // the row of a shelved_offloaded instance has its last host
		hosts += " AND t.state <> 'shelved_offloaded'"
	default:
		return called, nil
	}
	for i, id := range ids {
		names, err := ledger.QueryAll(ctx, q, ledger.ScanString, hosts, id)
		if err != nil {
			return nil, err
		}
		if len(names) == 1 {
			called[i] += " (host " + names[0] + ")"
		}
	}
	return called, nil
}

func resolveFilter(ctx context.Context, q ledger.Querier, k Kind, ref string) (string, error) {
	if ref == "" {
		return "", nil
	}
	return Resolve(ctx, q, k, ref)
}
