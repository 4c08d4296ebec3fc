-- SPDX-License-Identifier: Apache-2.0
-- The identity of the device at a location when the volume was placed there; '' if it is a file, or
-- unknown.
ALTER TABLE locations ADD COLUMN identity TEXT NOT NULL DEFAULT '';
