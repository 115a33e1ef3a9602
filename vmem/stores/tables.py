"""Tables of the catalogue, of the round log (section 3.4) and of API keys."""

import sqlalchemy as sa

VERSION = 2
"""Of the tables below; a database with another one is refused, one that lacks a table gets it."""

NAME_LENGTH = 200

METADATA = sa.MetaData()

SCHEMA_VERSION = sa.Table(
    "schema_version", METADATA, sa.Column("version", sa.Integer, primary_key=True)
)

BANKS = sa.Table(
    "banks",
    METADATA,
    sa.Column("name", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("text_encoder", sa.Text, nullable=False),
    sa.Column("text_width", sa.Integer, nullable=False),
    sa.Column("image_encoder", sa.Text, nullable=False),
    sa.Column("image_width", sa.Integer, nullable=False),
    sa.Column("text_collection", sa.Text, nullable=False),
    sa.Column("image_collection", sa.Text, nullable=False),
    sa.Column("manifest_digest", sa.Text),
    sa.Column("settings", sa.Text, nullable=False),
    # Memories that are gone had versions below it; a new memory starts at it.
    sa.Column("first_version", sa.Integer, nullable=False, default=0),
)

MEMORIES = sa.Table(
    "memories",
    METADATA,
    sa.Column("bank", sa.ForeignKey("banks.name"), primary_key=True),
    sa.Column("id", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("rounds", sa.Integer, nullable=False, default=0),
    sa.Column("images", sa.Integer, nullable=False, default=0),
    sa.Column("erased", sa.Integer, nullable=False, default=0),
    sa.Column("version", sa.Integer, nullable=False),
    sa.Column("indexed_version", sa.Integer, nullable=False),
    sa.Column("built_version", sa.Integer, nullable=False),
    sa.Column("created_at", sa.DateTime, nullable=False),
)

ROUNDS = sa.Table(
    "rounds",
    METADATA,
    sa.Column("bank", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("memory_id", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("round_id", sa.String(NAME_LENGTH), nullable=False),
    sa.Column("session", sa.Text, nullable=False),
    sa.Column("time", sa.Text, nullable=False),
    sa.Column("payload", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("version", sa.Integer, nullable=False),
    # A gap: what it said is gone; its place and id stay taken.
    sa.Column("erased", sa.Boolean, nullable=False, default=False),
    sa.UniqueConstraint("bank", "memory_id", "round_id"),
    sa.Index("rounds_by_version", "bank", "memory_id", "version"),
    sa.ForeignKeyConstraint(
        ["bank", "memory_id"], ["memories.bank", "memories.id"], ondelete="CASCADE"
    ),
)

# Which stored pictures and voice messages are still spoken of, so that others can be erased.
MEDIA = sa.Table(
    "media",
    METADATA,
    sa.Column("bank", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("memory_id", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("position", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True, index=True),
    sa.ForeignKeyConstraint(
        ["bank", "memory_id", "position"],
        ["rounds.bank", "rounds.memory_id", "rounds.position"],
        ondelete="CASCADE",
    ),
)

# What may be in the image folder though no round holds it: an append that did not come to the
# log, or an erasure from it. Its files are to go.
LOOSE_MEDIA = sa.Table(
    "loose_media",
    METADATA,
    sa.Column("bank", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("digest", sa.String(64), primary_key=True),
)

API_KEYS = sa.Table(
    "api_keys",
    METADATA,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(32), nullable=False, index=True),
    sa.Column("name", sa.Text, nullable=False),
    sa.Column("digest", sa.String(64), nullable=False),
    sa.Column("created_at", sa.DateTime, nullable=False),
    sa.Column("rotated_at", sa.DateTime),
    sa.Column("revoked_at", sa.DateTime),
    sa.Column("rate_per_minute", sa.Integer),
)
