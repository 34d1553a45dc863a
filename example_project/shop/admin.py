"""The shop's tables in the admin, next to those of the queue."""

from django.contrib import admin

from .models import Customer, Order, Payment, Product


@admin.register(Customer)
class CustomerAdmin(admin.ModelAdmin):
    list_display = ("name", "email", "welcomed_at")


@admin.register(Product)
class ProductAdmin(admin.ModelAdmin):
    list_display = ("name", "price", "sold")


@admin.register(Order)
class OrderAdmin(admin.ModelAdmin):
    list_display = ("id", "customer", "product", "quantity", "status", "is_booked")
    list_select_related = ("customer", "product")
    list_filter = ("status", "is_booked")


@admin.register(Payment)
class PaymentAdmin(admin.ModelAdmin):
    list_display = ("reference", "order", "amount", "paid_at")
    list_select_related = ("order",)
