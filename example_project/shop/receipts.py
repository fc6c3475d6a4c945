"""What a receipt is: who gets it, what it says, where it is kept. Nothing here knows of jobs."""

from __future__ import annotations

from pathlib import Path

from django.conf import settings
from django.core.exceptions import ValidationError
from django.core.mail import EmailMultiAlternatives
from django.core.validators import validate_email
from django.template.loader import render_to_string

from .models import Order, Product

# Mail servers that turn away a first attempt ("greylisting"), as some real ones do to keep spam out.
GREYLISTING = frozenset({"greylist.example.org"})


class UnknownProduct(LookupError):
    """The order names a product that the catalogue does not have."""


class BadAddress(ValueError):
    """The customer's email address cannot be one."""


class MailServerBusy(OSError):
    """The customer's mail server asks to try again later."""


def is_address(text: str) -> bool:
    try:
        validate_email(text)
    except ValidationError:
        return False
    return True


def recipient_of(order: Order) -> str:
    """Where the receipt goes. Raises BadAddress."""
    address = order.customer.email
    if not is_address(address):
        raise BadAddress(f"{address!r} is not an email address.")
    return address


def render(order: Order) -> str:
    """The receipt as HTML. Raises UnknownProduct."""
    product = Product.objects.filter(code=order.product_code).first()
    if product is None:
        raise UnknownProduct(f"No product has the code {order.product_code!r}.")
    total = product.price * order.quantity
    return render_to_string("shop/receipt.html", {"order": order, "product": product, "total": total})


def path_of(order: Order) -> Path:
    return Path(settings.RECEIPTS_DIR) / f"{order.number}.html"


def save(order: Order, html: str) -> Path:
    """Write the receipt to its file. Writing it again gives the same file."""
    path = path_of(order)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html, encoding="utf-8")
    return path


def mail(order: Order, recipient: str, html: str, *, attempt: int) -> None:
    """Send the receipt. Raises MailServerBusy.

    :param attempt: the pretended mail server turns away the first one.
    """
    if attempt == 1 and recipient.rpartition("@")[2] in GREYLISTING:
        raise MailServerBusy(f"451 4.7.1 {recipient}: greylisted, please try again later.")
    message = EmailMultiAlternatives(
        subject=f"Your receipt for order {order.number}",
        body=f"Dear {order.customer.name},\n\nthank you for your order. Your receipt is attached as HTML.\n",
        to=[recipient],
        # The same on every attempt, so that a mail sent twice can be told from two mails.
        headers={"Message-ID": f"<receipt-{order.number}@shop.example.com>"},
    )
    message.attach_alternative(html, "text/html")
    message.send()
