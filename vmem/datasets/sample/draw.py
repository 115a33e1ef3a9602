"""Makes every picture of the sample conversation, with Pillow only and the same on every run.

Photographs come out of installed packages (LICENSES.md names them); the rest is drawn here. Run
`python -m vmem.datasets.sample.draw` after `pip install scikit-image scikit-learn`.
"""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from PIL import Image, ImageDraw, ImageEnhance, ImageFont, ImageOps

from vmem.errors import DataError

IMAGES = Path(__file__).parent / "images"
SIDE = 440
INK, PAPER, GREEN, RUST, GREY = "#26221f", "#f6f0e2", "#24513f", "#b4522a", "#8d8a85"
Picture = Image.Image
Box = tuple[float, float, float, float]


def photo(package: str, name: str) -> Picture:
    """A photograph that an installed package carries.

    Raises:
        DataError: The package is not installed or no longer carries it.
    """
    folders = {"skimage": "data", "sklearn": "datasets/images"}
    spec = find_spec(package)
    path = Path(spec.origin or "").parent / folders[package] / name if spec else Path(name)
    if not path.is_file():
        raise DataError(f"{name} is carried by {package}: pip install scikit-image scikit-learn")
    return Image.open(path).convert("RGB")


def fit(picture: Picture, side: int = 384) -> Picture:
    """The picture with its long side at `side` pixels."""
    return ImageOps.contain(picture, (side, side), Image.Resampling.LANCZOS)


def part(picture: Picture, box: Box) -> Picture:
    """The part inside a box given as fractions of width and height."""
    width, height = picture.size
    left, top, right, bottom = box
    return picture.crop(
        (int(left * width), int(top * height), int(right * width), int(bottom * height))
    )


def lit(picture: Picture, brightness: float, color: float) -> Picture:
    """The picture under other light."""
    return ImageEnhance.Color(ImageEnhance.Brightness(picture).enhance(brightness)).enhance(color)


def write(draw: ImageDraw.ImageDraw, at: tuple[int, int], text: str, size: int, ink: str) -> None:
    """Write a line of text, centred on a point."""
    draw.text(at, text, fill=ink, font=ImageFont.load_default(size), anchor="mm")


def board(width: int, height: int, colour: str) -> tuple[Picture, ImageDraw.ImageDraw]:
    """A blank picture and the pen for it."""
    picture = Image.new("RGB", (width, height), colour)
    return picture, ImageDraw.Draw(picture)


def sign() -> Picture:
    """The saddler's painted board, with the silhouette of a horse."""
    picture, draw = board(SIDE, 330, GREEN)
    draw.rectangle((10, 10, SIDE - 11, 319), outline="#d8b65a", width=5)
    silhouette = ImageOps.invert(photo("skimage", "horse.png").convert("L")).resize((220, 180))
    picture.paste("#efe3c0", (110, 70), silhouette)
    write(draw, (SIDE // 2, 45), "JOSIAH TULLY", 36, "#d8b65a")
    write(draw, (SIDE // 2, 285), "SADDLER & HARNESS MAKER", 24, "#d8b65a")
    return picture


def floor_plan() -> Picture:
    """The rooms with their seats, seen from above."""
    picture, draw = board(SIDE, 330, PAPER)
    for name, note, box in (
        ("Front room", "24 seats", (20, 20, 240, 200)),
        ("Counter", "", (20, 200, 240, 250)),
        ("Back room", "14 seats", (240, 20, 420, 160)),
        ("Kitchen", "", (240, 160, 420, 250)),
        ("Courtyard", "back gate", (20, 250, 420, 315)),
    ):
        draw.rectangle(box, outline=INK, width=4)
        middle = ((box[0] + box[2]) // 2, (box[1] + box[3]) // 2)
        write(draw, (middle[0], middle[1] - (12 if note else 0)), name, 22, INK)
        write(draw, (middle[0], middle[1] + 14), note, 17, RUST)
    for x, y in ((45, 50), (180, 50), (45, 150), (180, 150), (262, 45), (380, 45)):
        draw.ellipse((x - 12, y - 12, x + 12, y + 12), outline=GREY, width=3)
    return picture


def flyer(date: str, ground: str) -> Picture:
    """The flyer for the opening day."""
    picture, draw = board(310, SIDE, ground)
    draw.rectangle((14, 14, 295, SIDE - 15), outline=PAPER, width=3)
    write(draw, (155, 80), "BRIDLE & BEAN", 34, PAPER)
    write(draw, (155, 122), "14 Tanner's Row, Wexcombe", 18, PAPER)
    draw.pieslice((85, 150, 225, 290), 0, 180, fill=PAPER)
    draw.arc((200, 205, 255, 260), 270, 90, fill=PAPER, width=9)
    write(draw, (155, 325), "WE OPEN", 28, PAPER)
    write(draw, (155, 362), date, 28, PAPER)
    write(draw, (155, 400), "first coffee free until noon", 18, PAPER)
    return picture


def chart() -> Picture:
    """Cups sold on each trial morning, as bars."""
    picture, draw = board(SIDE, 320, "white")
    write(draw, (SIDE // 2, 26), "Cups sold, trial mornings 12-15 March", 20, INK)
    draw.line((50, 270, 410, 270), fill=INK, width=3)
    for index, (day, cups) in enumerate((("Thu", 31), ("Fri", 46), ("Sat", 72), ("Sun", 58))):
        left = 70 + 88 * index
        draw.rectangle((left, 270 - 2.6 * cups, left + 58, 269), fill="#3f6fa8")
        write(draw, (left + 29, int(270 - 2.6 * cups) - 14), str(cups), 20, INK)
        write(draw, (left + 29, 290), day, 20, INK)
    return picture


def order() -> Picture:
    """A telephone's screenshot of an order confirmation."""
    picture, draw = board(260, SIDE, "#eef1f4")
    draw.rectangle((0, 0, 260, 52), fill="#1d3f5e")
    write(draw, (130, 27), "Tidewater Roasters", 21, "white")
    draw.rounded_rectangle((14, 70, 246, 420), 12, fill="white")
    write(draw, (130, 104), "Thank you, Oona!", 21, INK)
    rows = (("Order", "TW-20418"), ("Beans", "12 kg"), ("Total", "GBP 198.00"), ("Paid", "card"))
    for index, (name, value) in enumerate(rows):
        write(draw, (70, 165 + 52 * index), name, 17, GREY)
        write(draw, (180, 165 + 52 * index), value, 17, INK)
        draw.line((30, 190 + 52 * index, 230, 190 + 52 * index), fill="#dddddd", width=2)
    draw.rounded_rectangle((55, 370, 205, 406), 10, fill="#3a9a5b")
    write(draw, (130, 388), "Track parcel", 17, "white")
    return picture


def till() -> Picture:
    """The till's display with its error."""
    picture, draw = board(SIDE, 270, "#3b3d42")
    draw.rounded_rectangle((30, 26, 410, 190), 10, fill="#0c1a10")
    write(draw, (220, 80), "ERROR E-47", 46, "#57e07d")
    write(draw, (220, 140), "DRAWER NOT FOUND", 27, "#57e07d")
    for index, colour in enumerate(("#c9c9c9", "#c9c9c9", "#3a9a5b", "#c23b3b")):
        draw.rounded_rectangle((50 + 90 * index, 208, 120 + 90 * index, 250), 8, fill=colour)
    return picture


def menu() -> Picture:
    """The menu in chalk on a black board."""
    picture, draw = board(330, SIDE, "#1f2321")
    draw.rectangle((6, 6, 323, SIDE - 7), outline="#7a5230", width=12)
    write(draw, (165, 58), "Bridle & Bean", 32, "#f3efe6")
    for index, (name, price) in enumerate(
        (
            ("Cortado", "3.20"),
            ("Flat white", "3.60"),
            ("Tower Oolong, pot", "3.40"),
            ("Cardamom bun", "2.90"),
            ("Lemon polenta cake", "3.80"),
        )
    ):
        font = ImageFont.load_default(20)
        draw.text((36, 115 + 58 * index), name, fill="#f3efe6", font=font)
        draw.text((290, 115 + 58 * index), price, fill="#f0cf86", font=font, anchor="ra")
    return picture


def _cat(box: Box) -> Picture:
    return fit(part(photo("skimage", "chelsea.png"), box))


PICTURES: dict[str, Callable[[], Picture]] = {
    "sign.jpg": sign,
    "cat.jpg": lambda: _cat((0, 0, 1, 1)),
    "floor_plan.jpg": floor_plan,
    "coins.jpg": lambda: fit(photo("skimage", "coins.png")),
    "cup.jpg": lambda: fit(photo("skimage", "coffee.png")),
    "bricks.jpg": lambda: fit(photo("skimage", "brick.png"), 300),
    "dahlia.jpg": lambda: fit(photo("sklearn", "flower.jpg")),
    "flyer_may_2.jpg": lambda: flyer("Saturday 2 May", RUST),
    "tower.jpg": lambda: fit(photo("sklearn", "china.jpg")),
    "chart.jpg": chart,
    "rocket.jpg": lambda: fit(photo("skimage", "rocket.jpg")),
    "order.jpg": order,
    "cameraman.jpg": lambda: fit(photo("skimage", "camera.png")),
    "gravel.jpg": lambda: fit(photo("skimage", "gravel.png"), 260),
    "till.jpg": till,
    "menu.jpg": menu,
    "galaxies.jpg": lambda: fit(photo("skimage", "hubble_deep_field.jpg")),
    "astronaut.jpg": lambda: fit(photo("skimage", "astronaut.png")),
    "flyer_may_9.jpg": lambda: flyer("Saturday 9 May", "#28477a"),
    "cat_window.jpg": lambda: lit(_cat((0.2, 0.02, 0.95, 0.8)), 0.8, 1.5),
    # What questions attach: other views of the things above.
    "query_cat.jpg": lambda: ImageOps.mirror(lit(_cat((0.1, 0.05, 0.9, 0.95)), 1.15, 0.8)),
    "query_cup.jpg": lambda: fit(
        ImageOps.mirror(part(photo("skimage", "coffee.png"), (0.15, 0, 0.8, 0.95))), 360
    ),
    "query_dahlia.jpg": lambda: lit(
        fit(part(photo("sklearn", "flower.jpg"), (0.25, 0.1, 0.75, 0.9)), 340), 0.85, 0.9
    ),
    "query_tower.jpg": lambda: lit(
        fit(part(photo("sklearn", "china.jpg"), (0.08, 0, 0.62, 0.85)), 380), 0.8, 1.3
    ),
    "query_coins.jpg": lambda: lit(
        fit(part(photo("skimage", "coins.png"), (0.05, 0.3, 1, 1)), 380), 1.2, 1
    ),
    "query_sign.jpg": lambda: lit(sign().rotate(4, fillcolor=GREY), 0.75, 0.8),
    "query_rocket.jpg": lambda: ImageOps.mirror(
        lit(fit(part(photo("skimage", "rocket.jpg"), (0.25, 0.1, 0.85, 1)), 380), 1.3, 0.9)
    ),
    "query_cameraman.jpg": lambda: fit(
        part(photo("skimage", "camera.png"), (0.05, 0.05, 0.8, 0.85)), 300
    ),
    "query_galaxies.jpg": lambda: fit(
        part(photo("skimage", "hubble_deep_field.jpg"), (0.4, 0.35, 0.95, 0.9)), 320
    ),
}


def main() -> None:
    """Write every picture into `images/`."""
    IMAGES.mkdir(exist_ok=True)
    for name, make in PICTURES.items():
        make().save(IMAGES / name, quality=85, optimize=True)


if __name__ == "__main__":
    main()
