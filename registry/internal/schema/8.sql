-- SPDX-License-Identifier: Apache-2.0
-- The path where a volume was adopted: Volferry did not make its image. '' for volumes that
-- Volferry made.
ALTER TABLE volumes ADD COLUMN adopted_path TEXT NOT NULL DEFAULT '';
