"""Tables of the catalogue and of the round log (section 3.4)."""

import sqlalchemy as sa

VERSION = 1
"""Of the tables below; a database with another one is refused."""

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
    sa.UniqueConstraint("bank", "memory_id", "round_id"),
    sa.ForeignKeyConstraint(
        ["bank", "memory_id"], ["memories.bank", "memories.id"], ondelete="CASCADE"
    ),
)

# Which stored pictures are still spoken of, so that erasing a memory can erase the others.
IMAGES = sa.Table(
    "images",
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
