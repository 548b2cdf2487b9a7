(** Perturbation of a softmax over a finite list of tokens.

    [l] lists the tokens of one row (one layer, head and step), [a] are the logits of the exact keys, [ah] those of the
    served ones, [c] the radii.  The meter bounds the total variation between [softmax l a] and [softmax l ah]. *)

From Coq Require Import Reals List Lra Lia Psatz.
From Coquelicot Require Import Coquelicot.
From Assay Require Import Sums.
Import ListNotations.
Open Scope R_scope.

(** * Definitions *)

Definition softmax {I} (l : list I) (a : I -> R) (t : I) : R := exp (a t) / Sum l (fun s => exp (a s)).

Definition TV {I} (l : list I) (p q : I -> R) : R := Sum l (fun t => Rabs (p t - q t)) / 2.

(** Nonnegative weights that add up to one. *)
Definition weights {I} (l : list I) (p : I -> R) : Prop := (forall t, In t l -> 0 <= p t) /\ Sum l p = 1.

(** [c] is a radius for the step from exact to served logits. *)
Definition radius {I} (l : list I) (a ah c : I -> R) : Prop := forall t, In t l -> Rabs (ah t - a t) <= c t.

(** The distribution reached from served weights [ph] when logit errors [e] are taken back. *)
Definition tilt {I} (l : list I) (ph e : I -> R) (t : I) : R :=
  ph t * exp (- e t) / Sum l (fun s => ph s * exp (- e s)).

(** The accumulators of the meter. *)
Definition Aplus {I} (l : list I) (ph c : I -> R) : R := Sum l (fun t => ph t * exp (c t)).
Definition Aminus {I} (l : list I) (ph c : I -> R) : R := Sum l (fun t => ph t * exp (- c t)).

(** Mass of a set of tokens. *)
Definition mass {I} (l : list I) (p : I -> R) (T : I -> bool) : R := Sum l (fun t => if T t then p t else 0).

(** The worst case of a set, and of a fractional set [x]: ratio minus mass. *)
Definition frac {I} (l : list I) (x : I -> R) : Prop := forall t, In t l -> 0 <= x t <= 1.
Definition fU {I} (l : list I) (ph c x : I -> R) : R := Sum l (fun t => x t * ph t * exp (c t)).
Definition fV {I} (l : list I) (ph c x : I -> R) : R := Sum l (fun t => (1 - x t) * ph t * exp (- c t)).
Definition fP {I} (l : list I) (ph x : I -> R) : R := Sum l (fun t => x t * ph t).
Definition fval {I} (l : list I) (ph c x : I -> R) : R := fU l ph c x / (fU l ph c x + fV l ph c x) - fP l ph x.
Definition ind {I} (T : I -> bool) (t : I) : R := if T t then 1 else 0.

(** Supremum of a set of reals, and the relaxed worst case TV-star. *)
Definition Sup (E : R -> Prop) : R := real (Lub_Rbar E).
Definition TVstar {I} (l : list I) (ph c : I -> R) : R := Sup (fun v => exists x, frac l x /\ v = fval l ph c x).

(** * Suprema *)

Lemma Sup_is_lub (E : R -> Prop) B v : (forall w, E w -> w <= B) -> E v -> is_lub E (Sup E).
Proof.
  intros HB Hv. unfold Sup. destruct (Lub_Rbar_correct E) as [Hu Hl].
  assert (H1 : Rbar_le v (Lub_Rbar E)) by (apply Hu; exact Hv).
  assert (H2 : Rbar_le (Lub_Rbar E) B) by (apply Hl; intros w Hw; simpl; auto).
  destruct (Lub_Rbar E) as [z| |]; simpl in *; try easy.
  split.
  - intros w Hw. apply (Hu w Hw).
  - intros b Hb. apply (Hl b). intros w Hw. simpl. now apply Hb.
Qed.

Lemma Sup_ub (E : R -> Prop) B v : (forall w, E w -> w <= B) -> E v -> v <= Sup E.
Proof. intros HB Hv. now apply (Sup_is_lub E B v HB Hv). Qed.

Lemma Sup_le (E : R -> Prop) b v : E v -> (forall w, E w -> w <= b) -> Sup E <= b.
Proof. intros Hv Hb. now apply (Sup_is_lub E b v Hb Hv). Qed.

(** * Weights *)

Section Weights.
Context {I : Type}.
Implicit Types (l : list I) (p ph q a ah c e x g : I -> R) (T : I -> bool).

Lemma Sum_weighted_pos l p g :
  (forall t, In t l -> 0 <= p t) -> 0 < Sum l p -> (forall t, In t l -> 0 < g t) -> 0 < Sum l (fun t => p t * g t).
Proof.
  induction l as [|z l IH]; simpl; intros Hp Hs Hg; [lra|].
  assert (0 <= p z) by auto. assert (0 < g z) by auto.
  assert (0 <= Sum l (fun t => p t * g t)).
  { apply Sum_nonneg. intros t Ht. apply Rmult_le_pos; [auto|left; auto]. }
  destruct (Rle_lt_dec (p z) 0).
  - assert (p z = 0) by lra. rewrite H2. assert (0 < Sum l (fun t => p t * g t)) by (apply IH; auto; lra). lra.
  - assert (0 < p z * g z) by (apply Rmult_lt_0_compat; lra). lra.
Qed.

Lemma Sum_exp_pos l a : l <> [] -> 0 < Sum l (fun s => exp (a s)).
Proof. intros H. apply Sum_pos; auto. intros; apply exp_pos. Qed.

Lemma softmax_weights l a : l <> [] -> weights l (softmax l a).
Proof.
  intros H. pose proof (Sum_exp_pos l a H). split.
  - intros t _. unfold softmax. apply Rlt_le, Rdiv_lt_0_compat; [apply exp_pos|assumption].
  - unfold softmax. rewrite Sum_div. field. lra.
Qed.

Lemma weights_pos l ph g : weights l ph -> (forall t, In t l -> 0 < g t) -> 0 < Sum l (fun t => ph t * g t).
Proof. intros [H1 H2] Hg. apply Sum_weighted_pos; auto; lra. Qed.

Lemma weights_nonempty l ph : weights l ph -> l <> [].
Proof. intros [_ H] ->. simpl in H. lra. Qed.

Lemma tilt_weights l ph e : weights l ph -> weights l (tilt l ph e).
Proof.
  intros H. assert (HZ : 0 < Sum l (fun s => ph s * exp (- e s))) by (apply weights_pos; auto; intros; apply exp_pos).
  split.
  - intros t Ht. unfold tilt. destruct H as [H _]. specialize (H t Ht).
    apply Rmult_le_pos; [apply Rmult_le_pos; [assumption|left; apply exp_pos]|left; now apply Rinv_0_lt_compat].
  - unfold tilt. rewrite Sum_div. field. lra.
Qed.

(** The exact weights are the served ones with the logit errors taken back. *)
Lemma softmax_tilt l a ah t :
  l <> [] -> softmax l a t = tilt l (softmax l ah) (fun s => ah s - a s) t.
Proof.
  intros H. pose proof (Sum_exp_pos l a H) as Ha. pose proof (Sum_exp_pos l ah H) as Hh.
  assert (K : forall s, softmax l ah s * exp (- (ah s - a s)) = exp (a s) / Sum l (fun s => exp (ah s))).
  { intros s. unfold softmax. replace (a s) with (ah s + - (ah s - a s)) at 2 by ring.
    rewrite exp_plus. field. lra. }
  unfold tilt. rewrite K.
  rewrite (Sum_ext l (fun s => softmax l ah s * exp (- (ah s - a s))) (fun s => exp (a s) / Sum l (fun s => exp (ah s))))
    by (intros; apply K).
  rewrite Sum_div. unfold softmax. field. lra.
Qed.

Lemma TV_softmax_tilt l a ah :
  l <> [] -> TV l (softmax l a) (softmax l ah) = TV l (tilt l (softmax l ah) (fun s => ah s - a s)) (softmax l ah).
Proof.
  intros H. unfold TV. f_equal. apply Sum_ext. intros t _. now rewrite softmax_tilt with (ah := ah).
Qed.

(** * Normaliser, e-form (3.1) and two-sided form (3.2) *)

Lemma err_bounds l e c t : (forall t, In t l -> Rabs (e t) <= c t) -> In t l ->
  exp (- c t) <= exp (- e t) <= exp (c t).
Proof.
  intros H Ht. specialize (H t Ht). apply Rabs_le_between in H.
  split; (destruct (Req_dec (- c t) (- e t)); [idtac|]).
  - rewrite H0; lra.
  - left; apply exp_increasing; lra.
  - destruct (Req_dec (- e t) (c t)) as [->|]; [lra|left; apply exp_increasing; lra].
  - destruct (Req_dec (- e t) (c t)) as [->|]; [lra|left; apply exp_increasing; lra].
Qed.

Lemma Z_two_sided l ph e c :
  weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) ->
  Aminus l ph c <= Sum l (fun t => ph t * exp (- e t)) <= Aplus l ph c.
Proof.
  intros [Hw _] H. unfold Aminus, Aplus. split; apply Sum_le; intros t Ht;
    pose proof (err_bounds l e c t H Ht); specialize (Hw t Ht); apply Rmult_le_compat_l; lra.
Qed.

Lemma Aplus_ge_1 l ph c : weights l ph -> (forall t, In t l -> 0 <= c t) -> 1 <= Aplus l ph c.
Proof.
  intros [Hw H1] Hc. rewrite <- H1. unfold Aplus. apply Sum_le. intros t Ht.
  specialize (Hw t Ht). specialize (Hc t Ht). pose proof (exp_ineq1_le (c t)). nra.
Qed.

(** E[u] E[1/u] >= 1. *)
Lemma A_Aminus l ph c : weights l ph -> 1 <= Aplus l ph c * Aminus l ph c.
Proof.
  intros [Hw H1].
  pose proof (Sum_CS l ph (fun t => exp (c t / 2)) (fun t => exp (- c t / 2)) Hw) as K.
  rewrite (Sum_ext l _ ph) in K.
  2: { intros t _. rewrite <- exp_plus. replace (c t / 2 + - c t / 2) with 0 by lra. rewrite exp_0. ring. }
  rewrite H1 in K. unfold Aplus, Aminus.
  rewrite (Sum_ext l (fun t => ph t * exp (c t / 2) ^ 2) (fun t => ph t * exp (c t))) in K.
  2: { intros t _. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
  rewrite (Sum_ext l (fun t => ph t * exp (- c t / 2) ^ 2) (fun t => ph t * exp (- c t))) in K.
  2: { intros t _. simpl. rewrite Rmult_1_r, <- exp_plus. do 2 f_equal. lra. }
  lra.
Qed.

Lemma radius_nonneg l e c : (forall t, In t l -> Rabs (e t) <= c t) -> forall t, In t l -> 0 <= c t.
Proof. intros H t Ht. specialize (H t Ht). pose proof (Rabs_pos (e t)). lra. Qed.

(** Pointwise: two numbers between bounds around one. *)
Lemma ratio_bound (p E Z L H : R) : 0 <= p -> 0 < Z -> L * Z <= E -> E <= H * Z -> L <= 1 -> 1 <= H ->
  Rabs (p * E / Z - p) <= p * (H - L).
Proof.
  intros Hp HZ H1 H2 HL HH.
  replace (p * E / Z - p) with (p * (E / Z - 1)) by (field; lra).
  rewrite Rabs_mult, (Rabs_pos_eq p) by assumption. apply Rmult_le_compat_l; [assumption|].
  assert (L <= E / Z) by (apply Rmult_le_reg_r with Z; [assumption|]; field_simplify; lra).
  assert (E / Z <= H) by (apply Rmult_le_reg_r with Z; [assumption|]; field_simplify; lra).
  apply Rabs_le. lra.
Qed.

Lemma tilt_two_sided l ph e c :
  weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) ->
  TV l (tilt l ph e) ph <= (Aplus l ph c / Aminus l ph c - Aminus l ph c / Aplus l ph c) / 2.
Proof.
  intros Hw He. pose proof (Z_two_sided l ph e c Hw He) as [HZ1 HZ2].
  pose proof (radius_nonneg l e c He) as Hc.
  pose proof (Aplus_ge_1 l ph c Hw Hc) as HA.
  assert (HB : 0 < Aminus l ph c) by (apply weights_pos; auto; intros; apply exp_pos).
  assert (HB1 : Aminus l ph c <= 1).
  { destruct Hw as [Hw H1]. rewrite <- H1. apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hc t Ht).
    assert (exp (- c t) <= 1).
    { rewrite <- exp_0. destruct Hc as [Hc|Hc]; [left; apply exp_increasing; lra|rewrite <- Hc, Ropp_0; lra]. }
    nra. }
  set (A := Aplus l ph c) in *. set (B := Aminus l ph c) in *.
  set (Z := Sum l (fun t => ph t * exp (- e t))) in *.
  unfold TV. apply Rmult_le_compat_r; [lra|].
  apply Rle_trans with (Sum l (fun t => ph t * (exp (c t) / B - exp (- c t) / A))).
  - apply Sum_le. intros t Ht. unfold tilt. fold Z.
    pose proof (err_bounds l e c t He Ht) as [E1 E2]. destruct Hw as [Hw _]. specialize (Hw t Ht). specialize (Hc t Ht).
    pose proof (exp_pos (- c t)). pose proof (exp_pos (c t)).
    assert (exp (- c t) * exp (c t) = 1) by (rewrite <- exp_plus, Rplus_opp_l; apply exp_0).
    pose proof (exp_ineq1_le (c t)).
    apply ratio_bound; try lra.
    + apply Rmult_le_reg_r with A; [lra|]. unfold Rdiv. field_simplify; nra.
    + apply Rmult_le_reg_r with B; [lra|]. unfold Rdiv. field_simplify; [|lra]. nra.
    + apply Rmult_le_reg_r with A; [lra|]. unfold Rdiv. field_simplify; nra.
    + apply Rmult_le_reg_r with B; [lra|]. unfold Rdiv. field_simplify; [|lra]. nra.
  - apply Req_le. rewrite (Sum_ext l _ (fun t => ph t * exp (c t) / B - ph t * exp (- c t) / A)).
    + rewrite Sum_minus, !Sum_div. reflexivity.
    + intros t _. field. lra.
Qed.

Lemma tilt_e_form l ph e c :
  weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) ->
  TV l (tilt l ph e) ph <= ((Aplus l ph c)^2 - 1) / 2.
Proof.
  intros Hw He. pose proof (Z_two_sided l ph e c Hw He) as [HZ1 HZ2].
  pose proof (radius_nonneg l e c He) as Hc.
  pose proof (Aplus_ge_1 l ph c Hw Hc) as HA. pose proof (A_Aminus l ph c Hw) as HAB.
  set (A := Aplus l ph c) in *. set (B := Aminus l ph c) in *.
  set (Z := Sum l (fun t => ph t * exp (- e t))) in *.
  assert (HZA : 1 <= A * Z) by (apply Rle_trans with (1 := HAB); apply Rmult_le_compat_l; lra).
  assert (HZ : 0 < Z) by nra.
  unfold TV. apply Rmult_le_compat_r; [lra|].
  apply Rle_trans with (Sum l (fun t => A * (ph t * exp (c t)) - ph t)).
  - apply Sum_le. intros t Ht. unfold tilt. fold Z.
    pose proof (err_bounds l e c t He Ht) as [E1 E2]. destruct Hw as [Hw _]. specialize (Hw t Ht). specialize (Hc t Ht).
    pose proof (exp_ineq1_le (c t)). set (u := exp (c t)) in *.
    assert (Hu : exp (- c t) = / u) by (unfold u; apply exp_Ropp).
    assert (Hui : / u * u = 1) by (apply Rinv_l; lra).
    replace (A * (ph t * u) - ph t) with (ph t * (A * u - 1)) by ring.
    replace (ph t * exp (- e t) / Z - ph t) with (ph t * (exp (- e t) / Z - 1)) by (field; lra).
    rewrite Rabs_mult, (Rabs_pos_eq (ph t)) by assumption. apply Rmult_le_compat_l; [assumption|].
    assert (exp (- e t) / Z <= A * u).
    { apply Rmult_le_reg_r with Z; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. nra. }
    assert (/ (A * u) <= exp (- e t) / Z).
    { apply Rmult_le_reg_r with Z; [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra.
      rewrite Rinv_mult, Rmult_1_r. apply Rle_trans with (/ u); [|lra].
      assert (0 < / u) by (apply Rinv_0_lt_compat; lra).
      assert (/ A * Z <= 1).
      { apply Rmult_le_reg_l with A; [lra|]. rewrite <- Rmult_assoc, Rinv_r by lra. lra. }
      nra. }
    assert (1 <= A * u) by nra.
    assert (2 - A * u <= / (A * u)).
    { apply Rmult_le_reg_l with (A * u); [lra|]. rewrite Rinv_r by lra. nra. }
    apply Rabs_le. lra.
  - apply Req_le. rewrite Sum_minus, Sum_scal. destruct Hw as [_ ->]. unfold A, Aplus. ring.
Qed.

End Weights.

(** * Total variation as a maximum over sets (3.4) *)

Section Sets.
Context {I : Type}.
Implicit Types (l : list I) (p ph q a ah c e x g : I -> R) (T : I -> bool).

(** The set of the tokens that gain. *)
Definition gains p q t : bool := if Rle_dec (q t) (p t) then true else false.

Lemma TV_max_set l p q :
  weights l p -> weights l q ->
  (forall T, mass l p T - mass l q T <= TV l p q) /\ mass l p (gains p q) - mass l q (gains p q) = TV l p q.
Proof.
  intros [_ Hp] [_ Hq].
  assert (E : forall T, mass l p T - mass l q T = Sum l (fun t => (if T t then p t - q t else 0) - (p t - q t) / 2)).
  { intros T. rewrite Sum_minus, Sum_div, Sum_minus, Hp, Hq. unfold mass. rewrite <- Sum_minus.
    replace ((1 - 1) / 2) with 0 by lra. rewrite Rminus_0_r. apply Sum_ext. intros t _. destruct (T t); ring. }
  unfold TV. rewrite <- Sum_div. split.
  - intros T. rewrite E. apply Sum_le. intros t _.
    pose proof (Rle_abs (p t - q t)). pose proof (Rle_abs (- (p t - q t))) as K. rewrite Rabs_Ropp in K.
    destruct (T t); lra.
  - rewrite E. apply Sum_ext. intros t _. unfold gains. destruct (Rle_dec (q t) (p t)).
    + rewrite Rabs_pos_eq by lra. lra.
    + rewrite Rabs_left by lra. lra.
Qed.

Lemma mass_ind l p T : mass l p T = Sum l (fun t => ind T t * p t).
Proof. apply Sum_ext. intros t _. unfold ind. destruct (T t); ring. Qed.

Lemma frac_ind l T : frac l (ind T).
Proof. intros t _. unfold ind. destruct (T t); lra. Qed.

Lemma fUV_pos l ph c x : weights l ph -> frac l x -> 0 < fU l ph c x + fV l ph c x.
Proof.
  intros Hw Hx. unfold fU, fV. rewrite <- Sum_plus.
  rewrite (Sum_ext l _ (fun t => ph t * (x t * exp (c t) + (1 - x t) * exp (- c t)))) by (intros; ring).
  apply weights_pos; [assumption|]. intros t Ht. specialize (Hx t Ht).
  pose proof (exp_pos (c t)). pose proof (exp_pos (- c t)). nra.
Qed.

Lemma fU_nonneg l ph c x : weights l ph -> frac l x -> 0 <= fU l ph c x.
Proof.
  intros [Hw _] Hx. apply Sum_nonneg. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht).
  repeat apply Rmult_le_pos; try lra. left; apply exp_pos.
Qed.

Lemma fV_nonneg l ph c x : weights l ph -> frac l x -> 0 <= fV l ph c x.
Proof.
  intros [Hw _] Hx. apply Sum_nonneg. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht).
  repeat apply Rmult_le_pos; try lra. left; apply exp_pos.
Qed.

Lemma fP_bounds l ph x : weights l ph -> frac l x -> 0 <= fP l ph x <= 1.
Proof.
  intros [Hw H1] Hx. rewrite <- H1. split.
  - apply Sum_nonneg. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). nra.
  - apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). nra.
Qed.

Lemma share_mono X Y U V : 0 <= X <= U -> 0 <= V <= Y -> 0 < X + Y -> 0 < U + V -> X / (X + Y) <= U / (U + V).
Proof.
  intros HX HV H1 H2. apply Rmult_le_reg_r with ((X + Y) * (U + V)); [now apply Rmult_lt_0_compat|].
  replace (X / (X + Y) * ((X + Y) * (U + V))) with (X * (U + V)) by (field; lra).
  replace (U / (U + V) * ((X + Y) * (U + V))) with (U * (X + Y)) by (field; lra). nra.
Qed.

Lemma share_le_1 X Y : 0 <= X -> 0 <= Y -> 0 < X + Y -> X / (X + Y) <= 1.
Proof. intros. apply Rmult_le_reg_r with (X + Y); [assumption|]. field_simplify; lra. Qed.

(** For a fixed set the worst errors are -c on it and +c off it. *)
Lemma set_worst l ph e c T :
  weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) ->
  mass l (tilt l ph e) T - mass l ph T <= fval l ph c (ind T).
Proof.
  intros Hw He. unfold fval. rewrite (mass_ind l ph T). fold (fP l ph (ind T)).
  apply Rplus_le_compat_r.
  set (X := Sum l (fun t => ind T t * ph t * exp (- e t))).
  set (Y := Sum l (fun t => (1 - ind T t) * ph t * exp (- e t))).
  assert (HXY : X + Y = Sum l (fun t => ph t * exp (- e t))).
  { unfold X, Y. rewrite <- Sum_plus. apply Sum_ext. intros; ring. }
  assert (HZ : 0 < X + Y) by (rewrite HXY; apply weights_pos; auto; intros; apply exp_pos).
  replace (mass l (tilt l ph e) T) with (X / (X + Y)).
  2: { rewrite mass_ind. unfold tilt. rewrite <- HXY. unfold X at 1. rewrite <- Sum_div. apply Sum_ext. intros. field. lra. }
  assert (Hx := frac_ind l T).
  apply share_mono; try assumption; [| |now apply fUV_pos].
  - destruct Hw as [Hw _]. split.
    + apply Sum_nonneg. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht).
      repeat apply Rmult_le_pos; try lra. left; apply exp_pos.
    + apply Sum_le. intros t Ht. pose proof (err_bounds l e c t He Ht). specialize (Hw t Ht). specialize (Hx t Ht).
      apply Rmult_le_compat_l; [nra|lra].
  - split; [now apply fV_nonneg|]. destruct Hw as [Hw _].
    apply Sum_le. intros t Ht. pose proof (err_bounds l e c t He Ht). specialize (Hw t Ht). specialize (Hx t Ht).
    apply Rmult_le_compat_l; [nra|lra].
Qed.

(** The errors that attain it. *)
Definition worst c T t : R := if T t then - c t else c t.

Lemma set_worst_attained l ph c T :
  weights l ph ->
  mass l (tilt l ph (worst c T)) T - mass l ph T = fval l ph c (ind T).
Proof.
  intros Hw. unfold fval. rewrite (mass_ind l ph T). fold (fP l ph (ind T)). f_equal.
  rewrite mass_ind. unfold tilt.
  rewrite (Sum_ext l _ (fun t => ind T t * ph t * exp (c t) / Sum l (fun s => ph s * exp (- worst c T s)))).
  2: { intros t _. unfold ind, worst. destruct (T t); [rewrite Ropp_involutive|]; unfold Rdiv; ring. }
  rewrite Sum_div. unfold fU at 1. f_equal. unfold fU, fV. rewrite <- Sum_plus. apply Sum_ext. intros t _.
  unfold ind, worst. destruct (T t); [rewrite Ropp_involutive|]; ring.
Qed.

Lemma worst_valid l c T : (forall t, In t l -> 0 <= c t) -> forall t, In t l -> Rabs (worst c T t) <= c t.
Proof.
  intros H t Ht. specialize (H t Ht). unfold worst. destruct (T t); [rewrite Rabs_Ropp|]; rewrite Rabs_pos_eq; lra.
Qed.

(** The worst total variation over all admissible errors is the worst value over all sets of tokens. *)
Theorem worst_case_is_max_over_sets l ph c :
  weights l ph -> (forall t, In t l -> 0 <= c t) ->
  (forall e, (forall t, In t l -> Rabs (e t) <= c t) -> exists T, TV l (tilt l ph e) ph <= fval l ph c (ind T)) /\
  (forall T, exists e, (forall t, In t l -> Rabs (e t) <= c t) /\ fval l ph c (ind T) <= TV l (tilt l ph e) ph).
Proof.
  intros Hw Hc. split.
  - intros e He. exists (gains (tilt l ph e) ph).
    destruct (TV_max_set l (tilt l ph e) ph (tilt_weights l ph e Hw) Hw) as [_ <-]. now apply set_worst.
  - intros T. exists (worst c T). split; [now apply worst_valid|].
    rewrite <- set_worst_attained by assumption.
    now apply TV_max_set; [apply tilt_weights|].
Qed.

(** * Relaxation by fractions (3.5) *)

Lemma fval_le_1 l ph c x : weights l ph -> frac l x -> fval l ph c x <= 1.
Proof.
  intros Hw Hx. unfold fval.
  pose proof (share_le_1 _ _ (fU_nonneg l ph c x Hw Hx) (fV_nonneg l ph c x Hw Hx) (fUV_pos l ph c x Hw Hx)).
  pose proof (fP_bounds l ph x Hw Hx). lra.
Qed.

Lemma TVstar_ub l ph c x : weights l ph -> frac l x -> fval l ph c x <= TVstar l ph c.
Proof.
  intros Hw Hx. apply (Sup_ub _ 1); [|now exists x]. intros w (y & Hy & ->). now apply fval_le_1.
Qed.

Lemma TVstar_le l ph c b : (forall x, frac l x -> fval l ph c x <= b) -> TVstar l ph c <= b.
Proof.
  intros H. apply (Sup_le _ b (fval l ph c (ind (fun _ => false)))).
  - eexists. split; [apply frac_ind|reflexivity].
  - intros w (x & Hx & ->). now apply H.
Qed.

Lemma tilt_le_TVstar l ph e c :
  weights l ph -> (forall t, In t l -> Rabs (e t) <= c t) -> TV l (tilt l ph e) ph <= TVstar l ph c.
Proof.
  intros Hw He. pose proof (radius_nonneg l e c He) as Hc.
  destruct (proj1 (worst_case_is_max_over_sets l ph c Hw Hc) e He) as [T HT].
  apply Rle_trans with (1 := HT). apply TVstar_ub; [assumption|apply frac_ind].
Qed.

(** * tanh (3.3) *)

(** A rational lower bound on the exponential, for the numerical counterexamples. *)
Lemma exp_mul_nat (n : nat) (y : R) : exp (INR n * y) = (exp y)^n.
Proof.
  induction n as [|n IH]; [simpl; rewrite Rmult_0_l; apply exp_0|].
  rewrite S_INR. replace ((INR n + 1) * y) with (y + INR n * y) by ring. rewrite exp_plus, IH. reflexivity.
Qed.

Lemma exp_ge_pow (n : nat) (r : R) : 0 <= 1 + r / INR (S n) -> (1 + r / INR (S n))^(S n) <= exp r.
Proof.
  intros H. assert (Hn : INR (S n) <> 0) by (apply not_0_INR; discriminate).
  replace r with (INR (S n) * (r / INR (S n))) at 2 by (field; assumption).
  rewrite exp_mul_nat. apply pow_incr. split; [assumption|apply exp_ineq1_le].
Qed.

Lemma tanh_exp r : tanh (r / 2) = (exp r - 1) / (exp r + 1).
Proof.
  unfold tanh, sinh, cosh. rewrite exp_Ropp.
  assert (E : exp r = exp (r / 2) * exp (r / 2)) by (rewrite <- exp_plus; f_equal; lra).
  rewrite E. pose proof (exp_pos (r / 2)). field. repeat split; nra.
Qed.

(** Two probabilities whose odds differ by a factor of at most q^2. *)
Lemma odds_gap (s m q : R) : 0 <= m <= 1 -> 0 <= s <= 1 -> 1 <= q -> s * (1 - m) <= q^2 * (m * (1 - s)) ->
  (s - m) * (q + 1) <= q - 1.
Proof.
  intros Hm Hs Hq H. destruct (Rle_lt_dec ((s - m) * (q + 1)) (q - 1)) as [|L]; [assumption|exfalso].
  set (d := s - m) in *.
  assert (d <= (q^2 - 1) * (m * (1 - s))) by (unfold d; nra).
  assert (m * (1 - s) <= (1 - d)^2 / 4) by (unfold d; pose proof (pow2_ge_0 (m - (1 - s))); nra).
  assert (d <= (q^2 - 1) * ((1 - d)^2 / 4)).
  { apply Rle_trans with (1 := H0). apply Rmult_le_compat_l; [nra|assumption]. }
  assert (Hd : 0 <= 1 - d) by (unfold d; nra).
  assert ((1 - d) * (q + 1) < 2) by nra.
  assert (Hk : 0 <= (1 - d) * (q + 1)) by (apply Rmult_le_pos; lra).
  assert (((1 - d) * (q + 1))^2 <= 4).
  { replace 4 with (2^2) by ring. apply pow_incr. lra. }
  assert (d * (q + 1)^2 <= (q^2 - 1)).
  { apply Rle_trans with ((q^2 - 1) * ((1 - d)^2 / 4) * (q + 1)^2).
    - apply Rmult_le_compat_r; [apply pow2_ge_0|assumption].
    - replace ((q^2 - 1) * ((1 - d)^2 / 4) * (q + 1)^2) with ((q^2 - 1) * (((1 - d) * (q + 1))^2 / 4)) by field.
      apply Rle_trans with ((q^2 - 1) * 1); [apply Rmult_le_compat_l; nra|lra]. }
  assert ((q - 1) * (q + 1) < d * (q + 1) * (q + 1)) by (apply Rmult_lt_compat_r; lra).
  nra.
Qed.

Lemma tilt_tanh_range l ph e r :
  weights l ph -> (forall s t, In s l -> In t l -> e s - e t <= r) ->
  TV l (tilt l ph e) ph <= tanh (r / 4).
Proof.
  intros Hw He. pose proof (tilt_weights l ph e Hw) as Hp.
  destruct (TV_max_set l (tilt l ph e) ph Hp Hw) as [_ <-].
  set (T := gains _ _). replace (r / 4) with ((r / 2) / 2) by field. rewrite tanh_exp.
  set (q := exp (r / 2)).
  assert (Hr : 0 <= r).
  { destruct l as [|z l']; [now destruct (weights_nonempty _ _ Hw)|].
    specialize (He z z (or_introl eq_refl) (or_introl eq_refl)). lra. }
  assert (Hq : 1 <= q) by (pose proof (exp_ineq1_le (r / 2)); unfold q; lra).
  assert (Hmass : forall p, weights l p -> 0 <= mass l p T <= 1).
  { intros p [Hp1 Hp2]. rewrite <- Hp2. split.
    - apply Sum_nonneg. intros t Ht. destruct (T t); [now apply Hp1|lra].
    - apply Sum_le. intros t Ht. specialize (Hp1 t Ht). destruct (T t); lra. }
  pose proof (Hmass _ Hp). pose proof (Hmass _ Hw).
  apply Rmult_le_reg_r with (q + 1); [lra|].
  replace ((q - 1) / (q + 1) * (q + 1)) with (q - 1) by (field; lra).
  apply odds_gap; try assumption.
  (* odds *)
  set (Z := Sum l (fun s => ph s * exp (- e s))).
  assert (HZ : 0 < Z) by (apply weights_pos; auto; intros; apply exp_pos).
  set (X := Sum l (fun t => if T t then ph t * exp (- e t) else 0)).
  set (Y := Sum l (fun t => if T t then 0 else ph t * exp (- e t))).
  assert (HXY : X + Y = Z) by (unfold X, Y, Z; symmetry; apply Sum_split).
  assert (Es : mass l (tilt l ph e) T = X / Z).
  { unfold mass, tilt. fold Z. unfold X. rewrite <- Sum_div. apply Sum_ext. intros t _. destruct (T t); [reflexivity|lra]. }
  assert (Es' : 1 - mass l (tilt l ph e) T = Y / Z) by (rewrite Es, <- HXY; field; lra).
  assert (Em' : 1 - mass l ph T = Sum l (fun t => if T t then 0 else ph t)).
  { destruct Hw as [_ <-]. rewrite (Sum_split l T). unfold mass. ring. }
  rewrite Es', Es, Em'.
  assert (Hq2 : q^2 = exp r) by (unfold q; simpl; rewrite Rmult_1_r, <- exp_plus; f_equal; field).
  rewrite Hq2.
  set (m := mass l ph T) in *.
  assert (K1 : forall s, In s l -> X <= exp r * exp (- e s) * m).
  { intros s Hs. unfold X, m, mass. rewrite <- Sum_scal. apply Sum_le. intros t Ht.
    destruct (T t); [|lra]. destruct Hw as [Hw _]. specialize (Hw t Ht).
    assert (exp (- e t) <= exp r * exp (- e s)).
    { rewrite <- exp_plus. specialize (He s t Hs Ht).
      destruct (Req_dec (- e t) (r + - e s)) as [->|]; [lra|left; apply exp_increasing; lra]. }
    nra. }
  assert (K2 : X * Sum l (fun t => if T t then 0 else ph t) <= exp r * m * Y).
  { unfold Y. rewrite <- !Sum_scal. apply Sum_le. intros t Ht. destruct (T t); [lra|].
    destruct Hw as [Hw _]. specialize (Hw t Ht). specialize (K1 t Ht). nra. }
  replace (exp r * (m * (Y / Z))) with (exp r * m * Y / Z) by (field; lra).
  replace (X / Z * Sum l (fun t => if T t then 0 else ph t)) with (X * Sum l (fun t => if T t then 0 else ph t) / Z)
    by (field; lra).
  apply Rmult_le_compat_r; [left; now apply Rinv_0_lt_compat|assumption].
Qed.

End Sets.

(** * The statements for logits *)

Section Logits.
Context {I : Type}.
Implicit Types (l : list I) (a ah c : I -> R).

(** 3.1 *)
Theorem e_form l a ah c :
  l <> [] -> radius l a ah c ->
  TV l (softmax l a) (softmax l ah) <= ((Aplus l (softmax l ah) c)^2 - 1) / 2.
Proof.
  intros Hl Hc. rewrite TV_softmax_tilt by assumption. apply tilt_e_form; [now apply softmax_weights|exact Hc].
Qed.

(** 3.2 *)
Theorem two_sided l a ah c :
  l <> [] -> radius l a ah c ->
  TV l (softmax l a) (softmax l ah)
  <= (Aplus l (softmax l ah) c / Aminus l (softmax l ah) c - Aminus l (softmax l ah) c / Aplus l (softmax l ah) c) / 2.
Proof.
  intros Hl Hc. rewrite TV_softmax_tilt by assumption. apply tilt_two_sided; [now apply softmax_weights|exact Hc].
Qed.

(** 3.3: only the range of the errors matters. *)
Theorem tanh_range l a ah r :
  l <> [] -> (forall s t, In s l -> In t l -> (ah s - a s) - (ah t - a t) <= r) ->
  TV l (softmax l a) (softmax l ah) <= tanh (r / 4).
Proof.
  intros Hl Hr. rewrite TV_softmax_tilt by assumption. apply tilt_tanh_range; [now apply softmax_weights|exact Hr].
Qed.

(** 3.3: the sharp tanh in the largest radius. *)
Theorem tanh_half l a ah c C :
  l <> [] -> radius l a ah c -> (forall t, In t l -> c t <= C) ->
  TV l (softmax l a) (softmax l ah) <= tanh (C / 2).
Proof.
  intros Hl Hc HC. replace (C / 2) with (2 * C / 4) by field. apply tanh_range; [assumption|].
  intros s t Hs Ht. pose proof (Hc s Hs) as H1. pose proof (Hc t Ht) as H2. pose proof (HC s Hs). pose proof (HC t Ht).
  apply Rabs_le_between in H1. apply Rabs_le_between in H2. lra.
Qed.

(** 3.4, 3.5: the relaxed worst case is a bound. *)
Theorem TV_le_TVstar l a ah c :
  l <> [] -> radius l a ah c -> TV l (softmax l a) (softmax l ah) <= TVstar l (softmax l ah) c.
Proof.
  intros Hl Hc. rewrite TV_softmax_tilt by assumption. apply tilt_le_TVstar; [now apply softmax_weights|exact Hc].
Qed.

End Logits.

(** * Page grouping (3.5) *)

Section Pages.
Context {I J : Type} (eqb : forall a b : J, {a = b} + {a <> b}).

(** Total mass of a page, and the share of a fractional set in it. *)
Definition page_mass (l : list I) (key : I -> J) (ph : I -> R) (j : J) : R :=
  Sum l (fun t => if eqb (key t) j then ph t else 0).
Definition page_frac (l : list I) (key : I -> J) (ph x : I -> R) (j : J) : R :=
  page_mass l key (fun t => x t * ph t) j / page_mass l key ph j.

Lemma page_weights l (js : list J) key ph :
  NoDup js -> (forall t, In t l -> In (key t) js) -> weights l ph -> weights js (page_mass l key ph).
Proof.
  intros Hn Hk [Hw H1]. split.
  - intros j _. apply Sum_nonneg. intros t Ht. destruct (eqb (key t) j); [now apply Hw|lra].
  - rewrite <- H1. now apply Sum_group.
Qed.

Lemma page_share l key ph x j :
  weights l ph -> frac l x ->
  page_frac l key ph x j * page_mass l key ph j = page_mass l key (fun t => x t * ph t) j
  /\ 0 <= page_frac l key ph x j <= 1.
Proof.
  intros [Hw _] Hx. unfold page_frac.
  assert (H0 : 0 <= page_mass l key (fun t => x t * ph t) j).
  { apply Sum_nonneg. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). destruct (eqb _ _); nra. }
  assert (H1 : page_mass l key (fun t => x t * ph t) j <= page_mass l key ph j).
  { apply Sum_le. intros t Ht. specialize (Hw t Ht). specialize (Hx t Ht). destruct (eqb _ _); nra. }
  destruct (Req_dec (page_mass l key ph j) 0) as [E|E].
  - rewrite E in *. unfold Rdiv. rewrite Rinv_0. lra.
  - assert (0 < page_mass l key ph j) by lra. split; [field; lra|]. split.
    + apply Rmult_le_pos; [assumption|left; now apply Rinv_0_lt_compat].
    + apply Rmult_le_reg_r with (page_mass l key ph j); [assumption|]. field_simplify; lra.
Qed.

(** Every fractional set of tokens is beaten by a fractional set of pages with the page's largest radius. *)
Theorem pages_dominate l js key ph c cmax x :
  NoDup js -> (forall t, In t l -> In (key t) js) -> weights l ph -> frac l x ->
  (forall t, In t l -> c t <= cmax (key t)) ->
  frac js (page_frac l key ph x) /\
  fval l ph c x <= fval js (page_mass l key ph) cmax (page_frac l key ph x).
Proof.
  intros Hn Hk Hw Hx Hc. pose proof (page_weights l js key ph Hn Hk Hw) as HwJ.
  assert (HfJ : frac js (page_frac l key ph x)) by (intros j _; now apply page_share).
  split; [exact HfJ|].
  unfold fval.
  assert (EP : fP js (page_mass l key ph) (page_frac l key ph x) = fP l ph x).
  { unfold fP. rewrite (Sum_ext js _ (page_mass l key (fun t => x t * ph t))).
    - now apply Sum_group.
    - intros j _. now apply page_share. }
  rewrite EP. apply Rplus_le_compat_r.
  apply share_mono; [| |now apply fUV_pos|now apply fUV_pos].
  - split; [now apply fU_nonneg|]. unfold fU.
    rewrite <- (Sum_group eqb l js key (fun t => x t * ph t * exp (c t)) Hn Hk). apply Sum_le. intros j _.
    rewrite (proj1 (page_share l key ph x j Hw Hx)). unfold page_mass. rewrite <- Sum_scal_r. apply Sum_le. intros t Ht.
    destruct (eqb (key t) j) as [<-|]; [|lra]. specialize (Hc t Ht). destruct Hw as [Hw _]. specialize (Hw t Ht).
    specialize (Hx t Ht). apply Rmult_le_compat_l; [nra|].
    destruct Hc as [Hc| ->]; [left; now apply exp_increasing|lra].
  - split; [now apply fV_nonneg|]. unfold fV.
    rewrite <- (Sum_group eqb l js key (fun t => (1 - x t) * ph t * exp (- c t)) Hn Hk). apply Sum_le. intros j _.
    replace ((1 - page_frac l key ph x j) * page_mass l key ph j) with
      (page_mass l key ph j - page_mass l key (fun t => x t * ph t) j).
    2: { rewrite <- (proj1 (page_share l key ph x j Hw Hx)). ring. }
    unfold page_mass. rewrite <- Sum_minus, <- Sum_scal_r. apply Sum_le. intros t Ht.
    destruct (eqb (key t) j) as [<-|]; [|lra]. specialize (Hc t Ht). destruct Hw as [Hw _]. specialize (Hw t Ht).
    specialize (Hx t Ht). replace (ph t - x t * ph t) with ((1 - x t) * ph t) by ring.
    apply Rmult_le_compat_l; [nra|].
    destruct Hc as [Hc| ->]; [left; apply exp_increasing; lra|lra].
Qed.

Theorem TVstar_pages l js key ph c cmax :
  NoDup js -> (forall t, In t l -> In (key t) js) -> weights l ph ->
  (forall t, In t l -> c t <= cmax (key t)) ->
  TVstar l ph c <= TVstar js (page_mass l key ph) cmax.
Proof.
  intros Hn Hk Hw Hc. apply TVstar_le. intros x Hx.
  destruct (pages_dominate l js key ph c cmax x Hn Hk Hw Hx Hc) as [H1 H2].
  apply Rle_trans with (1 := H2). apply TVstar_ub; [now apply page_weights|exact H1].
Qed.

End Pages.

(** Pages must be allowed in fractions: with whole pages only, two tokens of one page report zero where the truth is
    tanh(1/10)/2, about 0.0498. *)
Section WholePages.

Let l := [true; false].
Let ph (_ : bool) := 1 / 2.
Let c (_ : bool) := 1 / 10.
Let e (b : bool) := if b then 1 / 10 else - (1 / 10).

Theorem whole_pages_unsound :
  weights l ph /\ (forall t, In t l -> Rabs (e t) <= c t) /\
  (forall T : unit -> bool,
     fval [tt] (page_mass (fun a b : unit => match a, b with tt, tt => left eq_refl end) l (fun _ => tt) ph)
          (fun _ => 1 / 10) (ind T) = 0) /\
  TV l (tilt l ph e) ph = tanh (1 / 10) / 2 /\ 0.049 < tanh (1 / 10) / 2.
Proof.
  repeat split.
  - intros t _. unfold ph. lra.
  - unfold l, ph. simpl. lra.
  - intros t _. unfold e, c. destruct t; [|rewrite Rabs_Ropp]; rewrite Rabs_pos_eq; lra.
  - intros T. pose proof (exp_pos (1 / 10)). pose proof (exp_pos (- (1 / 10))).
    unfold fval, fU, fV, fP, page_mass, ind, l, ph. simpl. destruct (T tt); field; lra.
  - unfold TV, tilt, l, ph, e, tanh, sinh, cosh. simpl. rewrite Ropp_involutive.
    assert (H : exp (- (1 / 10)) < exp (1 / 10)) by (apply exp_increasing; lra).
    pose proof (exp_pos (- (1 / 10))).
    set (u := exp (1 / 10)) in *. set (w := exp (- (1 / 10))) in *.
    assert (K : 0 < (u - w) / (2 * (u + w))) by (apply Rdiv_lt_0_compat; lra).
    replace (1 / 2 * w / (1 / 2 * w + (1 / 2 * u + 0)) - 1 / 2) with (- ((u - w) / (2 * (u + w)))) by (field; lra).
    replace (1 / 2 * u / (1 / 2 * w + (1 / 2 * u + 0)) - 1 / 2) with ((u - w) / (2 * (u + w))) by (field; lra).
    rewrite Rabs_Ropp, Rabs_pos_eq by lra. field. lra.
  - replace (1 / 10) with ((1 / 5) / 2) by lra. rewrite tanh_exp.
    pose proof (exp_ge_pow 7 (1 / 5)) as H. simpl in H. specialize (H ltac:(lra)).
    assert (1.218 <= exp (1 / 5)) by lra.
    set (u := exp (1 / 5)) in *. apply Rmult_lt_reg_r with (2 * (u + 1)); [lra|].
    replace ((u - 1) / (u + 1) / 2 * (2 * (u + 1))) with (u - 1) by (field; lra). lra.
Qed.

End WholePages.
