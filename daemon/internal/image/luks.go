// SPDX-License-Identifier: Apache-2.0

package image

import (
	"context"
	"errors"

	"github.com/volferry/volferry/daemon/internal/hv"
	"github.com/volferry/volferry/daemon/internal/qemuimg"
	"github.com/volferry/volferry/internal/api"
)

// Passphrase returns the passphrase of a LUKS container, by the UUID of libvirt's secret. It
// returns hv.ErrUnavailable while libvirt is down, and state_forbidden if libvirt does not return
// the secret.
func (s Storage) Passphrase(ctx context.Context, secret string) ([]byte, error) {
	if s.Secret == nil {
		return nil, errors.New("nobody gives the values of libvirt's secrets here")
	}
	passphrase, err := s.Secret(ctx, secret)
	if err == nil && len(passphrase) == 0 {
		err = errors.New("it is empty")
	}
	if err == nil || errors.Is(err, hv.ErrUnavailable) {
		return passphrase, err
	}
	return nil, api.Errorf(api.CodeStateForbidden, "libvirt does not give the passphrase of secret %s: %v", secret, err)
}

func (s Storage) passphrase(ctx context.Context, img hv.Image) ([]byte, error) {
	if img.LUKSSecret == "" {
		return nil, nil
	}
	return s.Passphrase(ctx, img.LUKSSecret)
}

// CheckSecret refuses a LUKS container if libvirt does not have its passphrase, or does not return
// it.
func (s Storage) CheckSecret(ctx context.Context, img hv.Image) error {
	_, err := s.passphrase(ctx, img)
	return err
}

// PayloadBytes returns the size of a LUKS container's decrypted content, from the header, which no
// guest can write.
func (s Storage) PayloadBytes(ctx context.Context, img hv.Image) (int64, error) {
	n, err := qemuimg.VirtualSize(ctx, s.host().qemuImage(img))
	if err != nil {
		return 0, badImage(img.Path, api.Format(img.Format), err)
	}
	return n, nil
}
